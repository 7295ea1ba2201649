"""The state of every result that a build is for, and why, in words."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import codes, fingerprint, manifest, record
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.engine.verified import Verifier
from ptq_dynamics.graph.due import Due
from ptq_dynamics.graph.site import Site
from ptq_dynamics.provenance.archive import label
from ptq_dynamics.provenance.differences import differences, told

State = Literal["fresh", "stale", "missing", "damaged"]


@dataclass(frozen=True)
class Finding:
    """One result: its job (`train wsd-3e-3`), its manifest, its state, and why it is not fresh, or
    is so by someone's word."""

    job: str
    manifest: str
    state: State
    why: str = ""

    def content(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def findings(site: Site, due: Due, targets: Iterable[Job], verifier: Verifier) -> list[Finding]:
    """The state of the results of some jobs and of all they need, by their manifests."""
    explain = Explanation(site, due, verifier)
    return sorted(map(explain.of, site.needed(targets)), key=lambda found: found.manifest)


class Explanation:
    """Says why results are due."""

    def __init__(self, site: Site, due: Due, verifier: Verifier) -> None:
        self._site, self._due, self._verifier = site, due, verifier
        self._told = dict[str, tuple[State, str]]()

    def of(self, job: Job) -> Finding:
        """The state of one job's result."""
        if not self._due.is_due(job):
            reason = self._due.accepted(job)
            why = f"accepted: {reason}" if reason else ""
            return Finding(label(job.specified()), job.manifest, "fresh", why)
        state, why = self._why(job)
        return Finding(label(job.specified()), job.manifest, state, why)

    def _why(self, job: Job) -> tuple[State, str]:
        if job.manifest not in self._told:
            self._told[job.manifest] = self._find(job)
        return self._told[job.manifest]

    def _find(self, job: Job) -> tuple[State, str]:
        if not job.paths.manifest.exists() and not job.paths.record.exists():
            return "missing", "it has not been made"
        try:
            account = record.read(job.paths.record)
            result = manifest.read(job.paths.manifest)
        except Problem as problem:
            return "damaged", str(problem)
        if account.output != {job.manifest: result.digest()}:
            return "damaged", f"{job.manifest} is not the one that its record names"
        if harm := self._verifier.harm(result):
            return "damaged", harm
        return "stale", told(list(self._reasons(job, account)))

    @cached_property
    def _table(self) -> codes.Table:
        return codes.known(codes.table_of(self._site.results))

    def _reasons(self, job: Job, account: record.Record) -> Iterator[str]:
        now = job.specified()
        places = fingerprint.places(job.stage, job.modules)
        yield from differences(
            account.job, now, places, {**self._table, **codes.held(account.job), **job.table()}
        )
        for path in job.needs:
            maker = self._site.made[path]
            if self._due.is_due(maker):
                yield f"its input {label(maker.specified())} is {self._why(maker)[0]}"
            elif (
                path in account.inputs
                and account.inputs[path] != manifest.read(maker.paths.manifest).digest()
            ):
                yield f"its input {label(maker.specified())} is not the one it was made from"
