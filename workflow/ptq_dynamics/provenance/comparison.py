"""Compare two builds by measurements and by jobs."""

from pathlib import Path

import numpy as np
import pandas as pd

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.job import differences
from ptq_dynamics.engine.record import Record
from ptq_dynamics.measure import measurements, names
from ptq_dynamics.measure.measurements import KEY
from ptq_dynamics.provenance.archive import Archive
from ptq_dynamics.provenance.state import shortened

EQUAL, WITHIN, DIFFERENT = "equal", "within tolerance", "different"
UNJUDGED, ONLY = "not judged", "only in one"
TOLERANCE = 2.0  # standard errors of a difference


def compare(one: Path, other: Path) -> pd.DataFrame:
    """Return values `one` and `other` of every measurement of two folders or tables, the standard
    `error` of their difference (nan if unknown), and the `verdict`."""
    first, second = _table(one), _table(other)
    table = pd.DataFrame({"one": first[names.VALUE], "other": second[names.VALUE]}).sort_index()
    table["error"] = np.hypot(first[names.ERROR], second[names.ERROR])
    in_common = table.index.isin(first.index) & table.index.isin(second.index)
    difference = table.one - table.other
    equal = (difference == 0) | (table.one.isna() & table.other.isna())
    is_unknown = table.error.isna() & difference.notna()
    is_small = difference.abs() <= TOLERANCE * table.error
    cases = [np.asarray(case, bool) for case in (~in_common, equal, is_unknown, is_small)]
    table["verdict"] = np.select(cases, [ONLY, EQUAL, UNJUDGED, WITHIN], DIFFERENT)
    return table


def _table(place: Path) -> pd.DataFrame:
    """Read the measurements of a build, indexed by their key."""
    path = place / names.MEASUREMENTS if place.is_dir() else place
    if not path.is_file():
        raise Problem(f"{path} is missing; name a table of measurements, or a folder with one")
    try:
        frame = measurements.read_table(path)
        frame = frame.astype({names.VALUE: float, names.ERROR: float})[list(measurements.COLUMNS)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise Problem(f"{path} is no table of measurements ({reason})") from None
    keys = frame[KEY].astype("string").fillna("")
    frame.index = pd.MultiIndex.from_frame(keys, names=[None] * len(KEY))
    return frame


def parting(one: Path, other: Path) -> str | None:
    """Name the first job whose result differs between two builds, and the reason, if any."""
    archives = list[Archive]()
    for place in (one, other):
        folder = place if place.is_dir() else place.parent
        archives.append(Archive([folder], [folder]))
        if not any(result.record.inputs for result in archives[-1].every):
            return f"{folder} has no records of jobs; the first differing job is unknown"
    theirs = {Path(path).parts[2:]: result for path, result in archives[1].results.items()}
    for result in archives[0].in_order():
        match = theirs.get(Path(result.path).parts[2:])
        if match is not None and result.digest != match.digest:
            reasons = [*differences(match.record.job, result.record.job)]
            now = _machine(result.record)
            for name, before in _machine(match.record).items():
                if before is not None and now[name] is not None:  # old records lack some facts
                    reasons += differences(before, now[name], name)
            alike = "equal specifications; the machine or nondeterminism differs"
            why = shortened(reasons) or alike
            return f"first job that differs: {result.label}, {result.path}: {why}"
    return None


def _machine(account: Record) -> dict[str, object]:
    """Return what decides the last bits of a result, besides its specification."""
    names = ("processor", "vector", "capability", "precision", "variables", "python")
    facts = {name: getattr(account.machine, name) for name in names}
    facts |= {"device": account.device.name or account.device.kind, "tf32": account.device.tf32}
    return {**facts, "threads": account.threads, "processes": account.processes}
