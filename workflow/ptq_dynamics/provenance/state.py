"""Which results are up to date, and why the others are not."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ptq_dynamics.engine import freshness, record
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph import Plan
from ptq_dynamics.provenance.archive import label

SHOWN = 3  # reasons that one line has


@dataclass(frozen=True)
class Finding:
    """The state of one result: its job in words, its manifest, and the reasons for its state."""

    job: str
    manifest: str
    stage: str
    state: Literal["fresh", "stale", "missing", "damaged"]
    reasons: tuple[str, ...] = ()


def shortened(reasons: Iterable[str]) -> str:
    """The first reasons in one line, and how many more there are."""
    given = [*reasons]
    more = [f"and {len(given) - SHOWN:,} more"] if len(given) > SHOWN else []
    return "; ".join([*given[:SHOWN], *more])


def find(plan: Plan, targets: Iterable[Job], *, deep: bool = False) -> list[Finding]:
    """The state of the results of some jobs and of all that they need, inputs first; `deep` reads
    every byte."""
    found = dict[str, Finding]()

    def visit(job: Job) -> Finding:
        if job.manifest not in found:
            inputs = [visit(plan.site.made[path]) for path in job.needs]
            found[job.manifest] = _of(job, inputs, deep)
        return found[job.manifest]

    for job in targets:
        visit(job)
    return [*found.values()]


def _of(job: Job, inputs: list[Finding], deep: bool) -> Finding:
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
