"""Two builds compared, measurement by measurement and job by job."""

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pandas as pd

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import freshness, manifest, record
from ptq_dynamics.engine.paths import RECORD
from ptq_dynamics.measure import measurements, names
from ptq_dynamics.measure.measurements import KEY, mean_and_error
from ptq_dynamics.measure.names import ERROR, VALUE, Paired
from ptq_dynamics.measure.pairing import contributions
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.provenance.archive import RELEASE, Archive, Result
from ptq_dynamics.provenance.state import shortened

EQUAL, WITHIN, DIFFERENT = "equal", "within tolerance", "different"
UNJUDGED, ONLY = "not judged", "only in one"
# Standard errors of a difference that count as chance.
TOLERANCE = 2.0
NO_REASON = "its specification is the same, so machine or chance made it another"


class Build:
    """What lies in a folder of results: its table and, where they are there, raw results and
    records. `path` is that folder or the table."""

    def __init__(self, path: Path) -> None:
        self.path = path / names.MEASUREMENTS if path.is_dir() else path
        if not self.path.is_file():
            raise Problem(
                f"{self.path} is missing; name a table of measurements, or a folder with one"
            )
        # Records of all its results, those in the archive of a release too.
        self.archive = Archive([self.path.parent], [self.path.with_name(RELEASE)])

    @cached_property
    def table(self) -> pd.DataFrame:
        """Its measurements, by what tells them apart."""
        try:
            frame = measurements.read(self.path)
            frame = frame.astype({VALUE: float, ERROR: float})[list(measurements.COLUMNS)]
            keys = frame[KEY].astype("string").fillna("")
            frame.index = pd.MultiIndex.from_frame(keys, names=[None] * len(KEY))
            return frame
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Problem(f"{self.path} is no table of measurements ({error})") from None

    @cached_property
    def _labels(self) -> dict[str, list[str]]:
        # Of the inputs of the table, where its record is beside it.
        with suppress(Problem):
            found = record.read(self.path.with_name(f"{self.path.stem}.{RECORD}"))
            return cast(dict[str, list[str]], found.job["inputs"])
        return {}

    def blocks(self, metric: Paired, series: Series) -> dict[str, np.ndarray]:
        """Contribution of every block to a metric, by checkpoint; none without raw results."""
        with suppress(Problem, KeyError):
            # In this folder, whatever that is called now.
            inputs = {
                key: [manifest.read(self.path.parent / _place(path)) for path in group]
                for key, group in self._labels.items()
                if f" {series.trajectory} seed {series.seed} " in key
            }
            return contributions(metric, series, inputs)
        return {}


def compare(one: Build, other: Build) -> pd.DataFrame:
    """A row for every measurement that either build has: value `one` and `other`, the standard
    `error` of their difference (nan: not known), whether that is `paired` block by block or else
    bounded by the errors of both, and the `verdict`."""
    first, second = one.table, other.table
    found = pd.DataFrame({"one": first[VALUE], "other": second[VALUE]}).sort_index()
    found["error"], found["paired"] = np.hypot(first[ERROR], second[ERROR]), False
    in_common = found.index.isin(first.index) & found.index.isin(second.index)
    difference = found.one - found.other
    equal = (difference == 0) | (found.one.isna() & found.other.isna())
    for key, error in _paired(one, other, first.loc[found.index[in_common & ~equal]]):
        found.loc[key, ["error", "paired"]] = error, True
    is_unknown = found.error.isna() & difference.notna()
    is_small = difference.abs() <= TOLERANCE * found.error
    found["verdict"] = np.select(
        [~in_common, equal, is_unknown, is_small], [ONLY, EQUAL, UNJUDGED, WITHIN], DIFFERENT
    )
    return found


def _paired(one: Build, other: Build, rows: pd.DataFrame) -> Iterator[tuple[Any, float]]:
    """Standard error of the difference of every measurement that blocks are there for."""
    rows = rows[rows[names.METRIC].isin(get_args(Paired))]
    which = [names.TRAJECTORY, names.SEED, names.QUANTIZER, names.METRIC]
    for key, group in rows.groupby(which, sort=False):
        name, seed, quantizer, metric = cast(tuple[str, int, str, Paired], key)
        series = Series(name, int(seed), "", quantizer, "", None, None)
        mine, theirs = one.blocks(metric, series), other.blocks(metric, series)
        for place, checkpoint in zip(group.index, group.checkpoint_id, strict=True):
            pair = mine.get(checkpoint), theirs.get(checkpoint)
            if pair[0] is not None and pair[1] is not None and pair[0].shape == pair[1].shape:
                yield place, mean_and_error(pair[0] - pair[1])[1]


def parting(one: Build, other: Build) -> str | None:
    """The first result of one build, in the order they are made, that is not the same in the
    other, and how its specification, or what made it, differs; None where all that both have are
    the same."""
    for build in (one, other):
        if not any(each.record.inputs for each in build.archive.every):
            return f"{build.path.parent} has no records of jobs, so where they part is unknown"
    theirs = {_place(path): result for path, result in other.archive.results.items()}
    for result in one.archive.in_order():
        match = theirs.get(_place(result.path))
        if match is not None and result.digest != match.digest:
            reasons = shortened(freshness.differences(_made(match), _made(result))) or NO_REASON
            return f"they part first at {result.label}, {result.path}: {reasons}"
    return None


def _made(result: Result) -> dict[str, Any]:
    """The specification of a result, and what of its machine may alter it."""
    account, machine = result.record, result.record.machine
    own = {"processor": machine.processor, "vector": machine.vector, "python": machine.python}
    return {**account.job, **own, "device": account.device.name, "processes": account.processes}


def _place(path: str) -> str:
    """Where a result lies below the folder of its scale."""
    return "/".join(Path(path).parts[2:])
