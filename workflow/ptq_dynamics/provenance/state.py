"""Which results are up to date, and why the others are not."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

<<<<<<< HEAD
from ptq_dynamics.engine import freshness, record
=======
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import codes, fingerprint, manifest, record
>>>>>>> engine
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph import Plan
from ptq_dynamics.provenance.archive import label

State = Literal["fresh", "stale", "missing", "damaged"]
SHOWN = 3  # reasons that one line has


@dataclass(frozen=True)
class Finding:
    """The state of one result: its job in words, its manifest, and the reasons for its state."""

    job: str
    manifest: str
    stage: str
    state: State
    reasons: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The reasons in one line."""
        return shortened(self.reasons)


def shortened(reasons: Iterable[str]) -> str:
    """The first reasons in one line, and how many more there are."""
    given = [*reasons]
    more = [f"and {len(given) - SHOWN:,} more"] if len(given) > SHOWN else []
    return "; ".join([*given[:SHOWN], *more])


def find(plan: Plan, targets: Iterable[Job], *, deep: bool = False) -> list[Finding]:
    """The state of the results of some jobs and of all that they need, inputs first; `deep` reads
    every byte."""
    found = dict[str, Finding]()
    waiting = [*targets]
    while waiting:
        job = waiting[-1]
        makers = [plan.site.made[path] for path in job.needs]
        if job.manifest in found:
            waiting.pop()
        elif unknown := [each for each in makers if each.manifest not in found]:
            waiting += unknown
        else:
            waiting.pop()
            found[job.manifest] = _of(job, [found[each.manifest] for each in makers], deep)
    return [*found.values()]


<<<<<<< HEAD
def _of(job: Job, inputs: list[Finding], deep: bool) -> Finding:
    """The state of one result whose inputs have these states."""
    about = label({"stage": job.stage, "name": job.name}), job.manifest, job.stage
    reasons = freshness.stale(job.spec, job.paths, deep=deep)
    waits = [f"its input {each.job} is {each.state}" for each in inputs if each.state != "fresh"]
    if reasons == [freshness.MISSING]:
        return Finding(*about, "missing", ("it has not been built",))
    if reasons and reasons[0].startswith(freshness.DAMAGED):
        return Finding(*about, "damaged", (reasons[0].removeprefix(f"{freshness.DAMAGED}: "),))
    if reasons or waits:
        return Finding(*about, "stale", (*reasons, *dict.fromkeys(waits)))
    accepted = record.read(job.paths.record).accepted
    return Finding(*about, "fresh", tuple(f"accepted: {each.reason}" for each in accepted))
=======
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
>>>>>>> engine
