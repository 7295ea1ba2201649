"""The states of results, and accepted changes."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from ptq_dynamics.base.content import canonical, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.engine.job import DAMAGED, MISSING, Job, differences, digest_of, stale
from ptq_dynamics.engine.lease import held
from ptq_dynamics.plan import Plan
from ptq_dynamics.provenance.archive import label

SHOWN = 3  # reasons in a line
MAY_DIFFER = {"code", "libraries", "stage"}  # keys of a specification whose changes can be accepted


@dataclass(frozen=True)
class Finding:
    """The state of a result, and the reasons for it."""

    job: str
    manifest: str
    stage: str
    state: Literal["up to date", "outdated", "missing", "damaged"]
    reasons: tuple[str, ...] = ()


def shortened(reasons: Iterable[str]) -> str:
    """Join the first reasons, and count the others."""
    given = [*reasons]
    more = [f"and {len(given) - SHOWN:,} more"] if len(given) > SHOWN else []
    return "; ".join([*given[:SHOWN], *more])


def find(plan: Plan, targets: Iterable[Job], *, deep: bool = False) -> list[Finding]:
    """Return the states of results and of their lineage, inputs first; `deep` hashes all files."""
    findings = dict[str, Finding]()
    for job in plan.site.needed(targets):
        findings[job.manifest] = _of(job, [findings[path] for path in job.needs], deep)
    return [*findings.values()]


def _of(job: Job, inputs: list[Finding], deep: bool) -> Finding:
    about = label(job.spec), job.manifest, job.stage
    reasons = stale(job.spec, job.paths, deep=deep)
    waits = [f"its input {e.job} is {e.state}" for e in inputs if e.state != "up to date"]
    if reasons == [MISSING]:
        return Finding(*about, "missing", ("it has not been built",))
    if reasons and reasons[0].startswith(DAMAGED):
        return Finding(*about, "damaged", (reasons[0].removeprefix(f"{DAMAGED}: "),))
    if reasons or waits:
        return Finding(*about, "outdated", (*reasons, *dict.fromkeys(waits)))
    return Finding(*about, "up to date", record.read(job.paths.record).notes)


def accept(jobs: Iterable[Job], reason: str) -> list[str]:
    """Write present specifications into records, with the reason; return lines about them.
    Raises `Problem`, before any record is written, if settings or inputs differ."""
    changes, lines = [], []
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    for job in jobs:
        known, now = record.read(job.paths.record), job.spec
        keys = sorted({*known.job, *now} - MAY_DIFFER)
        other = [key for key in keys if canonical(known.job.get(key)) != canonical(now.get(key))]
        other += [p for p, digest in known.inputs.items() if digest_of(p) != digest]
        if other:
            why = "than its result; accept covers only code and libraries, so rebuild the result"
            raise Problem(f"{label(now)} has another {', '.join(other)} {why}")
        if differs := tuple(differences(known.job, now)):
            mine = record.Acceptance(reason, when, differs, known.identity)
            changes.append((job, known, replace(known, job=now, accepted=(*known.accepted, mine))))
            lines.append(f"{label(now)}: {'; '.join(differs)}")
    for job, known, renewed in changes:
        with held(job.paths.lease, print):
            if record.read(job.paths.record) != known:
                raise Problem(f"a build made {job.manifest} anew meanwhile; run the command again")
            write_atomically(job.paths.record, renewed.text())
    return lines
