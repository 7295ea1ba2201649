"""Declare that a change of code or libraries changes no result, so that nothing is made again."""

import datetime
from collections.abc import Iterable
from dataclasses import replace

from ptq_dynamics.base.content import canonical, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import freshness, record
from ptq_dynamics.engine.record import Acceptance
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.provenance.archive import label

# Of a specification: what may be declared to make no difference. All else asks for another result.
MAY_DIFFER = {"code", "libraries", "stage"}


def accept(jobs: Iterable[Job], reason: str) -> list[str]:
    """Give results the specification that their jobs have now, and note the reason; what differs, a
    line a result.

    Raises `Problem`, before anything is written, where a result has other settings or inputs, or is
    not there.
    """
    changes, lines = [], []
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    for job in jobs:
        known, now = record.read(job.paths.record), job.spec
        keys = sorted({*known.job, *now} - MAY_DIFFER)
        other = [key for key in keys if canonical(known.job.get(key)) != canonical(now.get(key))]
        other += [path for path, digest in known.inputs.items() if freshness.digest(path) != digest]
        if other:
            raise Problem(
                f"{label(now)} has another {', '.join(other)} than its result, which cannot be "
                "accepted; build it again"
            )
        if differs := tuple(freshness.differences(known.job, now)):
            mine = Acceptance(reason, when, differs, known.identity)
            changes.append((job, replace(known, job=now, accepted=(*known.accepted, mine))))
            lines.append(f"{label(now)}: {'; '.join(differs)}")
    for job, renewed in changes:
        write_atomically(job.paths.record, renewed.text())
    return lines
