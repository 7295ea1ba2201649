"""Declare that a change of code or libraries changes no result, so that nothing is made again."""

import datetime
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ptq_dynamics.base.content import canonical, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import fingerprint, manifest, record
from ptq_dynamics.engine.codes import Table, held
from ptq_dynamics.engine.fingerprint.code import DEFINITIONS
from ptq_dynamics.engine.record import Acceptance
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.provenance.archive import label
from ptq_dynamics.provenance.differences import differences

# Of a specification: what may be declared to make no difference. All else asks for another result.
MAY_DIFFER = {"code", DEFINITIONS, "environment", "stage", "modules"}


def accept(jobs: Iterable[Job], reason: str, table: Table) -> list[str]:
    """Give results the specification that their jobs have now, and note the reason; what differs, a
    line a result, also of the code as far as its table knows it.

    Raises `Problem`, before anything is written, where one has other settings or inputs, or is not
    there.
    """
    changes, told = [], []
    for job in jobs:
        known, now = record.read(job.paths.record), job.specified()
        other = [
            key
            for key in sorted({*known.job, *now} - MAY_DIFFER)
            if canonical(known.job.get(key)) != canonical(now.get(key))
        ]
        if other:
            raise Problem(
                f"{label(now)} has other {', '.join(other)} than its result, which no word makes "
                "equal; build it again"
            )
        for path, digest in known.inputs.items():
            if manifest.read(Path(path)).digest() != digest:
                raise Problem(
                    f"{label(now)} was made from another {path} than the one there; build it again"
                )
        places = fingerprint.places(job.stage, job.modules)
        differs = [
            *differences(known.job, now, places, {**table, **held(known.job), **job.table()})
        ]
        if differs:
            when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            mine = Acceptance(reason, when, tuple(differs), known.made_with)
            accepted = (*known.accepted, mine)
            renewed = replace(known, job=now, accepted=accepted)
            changes.append((job, renewed))
            told.append(f"{label(now)}: {'; '.join(differs)}")
    for job, account in changes:
        write_atomically(job.paths.record, account.text())
    return told
