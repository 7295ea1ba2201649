"""Two builds compared, measurement by measurement and job by job."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import numpy as np
import pandas as pd

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import freshness, manifest
from ptq_dynamics.engine.paths import RECORD
from ptq_dynamics.measure import measurements, names
from ptq_dynamics.measure.measurements import KEY, mean_and_error
from ptq_dynamics.measure.names import ERROR, VALUE, Paired
from ptq_dynamics.measure.pairing import contributions
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.provenance.archive import RELEASE, Archive, Result

EQUAL, WITHIN, DIFFERENT = "equal", "within tolerance", "different"
UNJUDGED, ONLY = "not judged", "only in one"
GROUP = [names.TRAJECTORY, names.SEED, names.QUANTIZER, names.METRIC]
# Standard errors of a difference that count as chance.
TOLERANCE = 2.0
# Of a machine and its device: what alters no result.
UNLIKE = {"memory": None, "peak_memory": None}


class Build:
    """What lies in a folder of results: its table and, where they are there, raw results and
    records. `path` is that folder or the table."""

    def __init__(self, path: Path) -> None:
        self.path = path / names.MEASUREMENTS if path.is_dir() else path
        if not self.path.is_file():
            raise Problem(
                f"{self.path} is missing; name a table of measurements, or a folder with one"
            )

    @cached_property
    def table(self) -> pd.DataFrame:
        """Its measurements, by what tells them apart."""
        try:
            frame = measurements.read(self.path)
            frame = frame.astype({VALUE: float, ERROR: float})[list(measurements.COLUMNS)]
            keys = frame[KEY].astype("string").fillna("")
            frame.index = pd.MultiIndex.from_frame(keys, names=[None] * len(KEY))
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise Problem(f"{self.path} is no table of measurements ({reason})") from None
        return frame

    @cached_property
    def archive(self) -> Archive:
        """Records of all its results, those in the archive of a release too."""
        return Archive([self.path.parent], [self.path.with_name(RELEASE)])

    @cached_property
    def _labels(self) -> dict[str, list[str]]:
        # Of the inputs of the table, where its record is beside it.
        place = self.path.with_name(f"{self.path.stem}.{RECORD}")
        found = (each.record.job["inputs"] for each in self.archive.every if each.place == place)
        return next(found, {})

    def blocks(self, metric: Paired, series: Series) -> dict[str, np.ndarray]:
        """Contribution of every block to a metric, by checkpoint; none without raw results."""
        try:
            # In this folder, whatever that is called now.
            inputs = {
                key: [manifest.read(self.path.parent / _place(path)) for path in group]
                for key, group in self._labels.items()
                if f" {series.trajectory} seed {series.seed} " in key
            }
            return contributions(metric, series, inputs)
        except (Problem, KeyError):
            return {}


def compare(one: Build, other: Build) -> pd.DataFrame:
    """A row for every measurement that either build has: value `one` and `other`, the standard
    `error` of their difference (nan: not known), whether that is `paired` block by block or else
    bounded by the errors of both, and the `verdict`."""
    first, second = one.table, other.table
    found = pd.DataFrame({"one": first[VALUE], "other": second[VALUE]}).sort_index()
    found["error"] = np.hypot(first[ERROR], second[ERROR])
    found["paired"] = False
    in_common = found.index.isin(first.index) & found.index.isin(second.index)
    for key, error in _paired(one, other, first.loc[found.index[in_common]]):
        found.loc[key, ["error", "paired"]] = error, True
    difference = found.one - found.other
    equal = (difference == 0) | (found.one.isna() & found.other.isna())
    found["verdict"] = np.select(
        [
            ~in_common,
            equal,
            found.error.isna() & difference.notna(),
            difference.abs() <= TOLERANCE * found.error,
        ],
        [ONLY, EQUAL, UNJUDGED, WITHIN],
        DIFFERENT,
    )
    return found


def _paired(one: Build, other: Build, rows: pd.DataFrame) -> Iterator[tuple[Any, float]]:
    """Standard error of the difference of every measurement that blocks are there for."""
    rows = rows[rows[VALUE] != other.table.loc[rows.index, VALUE]]
    rows = rows[rows[names.METRIC].isin(get_args(Paired))]
    for which, group in rows.groupby(GROUP, sort=False):
        name, seed, quantizer, metric = cast(tuple[str, int, str, Paired], which)
        series = Series(name, int(seed), "", quantizer, "", None, None)
        mine, theirs = one.blocks(metric, series), other.blocks(metric, series)
        for key, checkpoint in zip(group.index, group.checkpoint_id, strict=True):
            pair = mine.get(checkpoint), theirs.get(checkpoint)
            if pair[0] is not None and pair[1] is not None and pair[0].shape == pair[1].shape:
                yield key, mean_and_error(pair[0] - pair[1])[1]


class Parting(NamedTuple):
    """The first job whose result differs, in words and by its manifest, and how its specification,
    or what made it, does."""

    job: str
    result: str
    reasons: tuple[str, ...]


def parting(one: Build, other: Build) -> Parting | None:
    """The first result of one build, in the order they are made, that is not the same in the
    other; None where all that both have are. Raises `Problem` where a build has no records."""
    for build in (one, other):
        if not any(each.record.inputs for each in build.archive.every):
            raise Problem(
                f"{build.path.parent} has no records of jobs, so where they part is unknown"
            )
    theirs = {_place(path): result for path, result in other.archive.results.items()}
    for result in one.archive.in_order():
        match = theirs.get(_place(result.path))
        if match is not None and result.digest != match.digest:
            return Parting(result.label, result.path, tuple(_reasons(match, result)))
    return None


def _reasons(before: Result, now: Result) -> Iterator[str]:
    """How the specifications of two results differ, and what made them."""
    old, new = before.record, now.record
    yield from freshness.differences(old.job, new.job)
    for name in ("machine", "device"):
        was, is_now = (asdict(getattr(each, name)) | UNLIKE for each in (old, new))
        yield from freshness.differences(was, is_now, name)
    yield from freshness.differences(old.processes, new.processes, "processes")


def _place(path: str) -> str:
    """Where a result lies below the folder of its scale."""
    return "/".join(Path(path).parts[2:])
