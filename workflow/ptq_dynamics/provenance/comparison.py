"""Two builds compared, measurement by measurement and job by job."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import codes, manifest
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import RECORD
from ptq_dynamics.engine.record import Record
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.measurements import KEY, mean_and_error
from ptq_dynamics.measure.names import (
    ERROR,
    MEASUREMENTS,
    METRIC,
    QUANTIZER,
    SEED,
    TRAJECTORY,
    VALUE,
    Paired,
)
from ptq_dynamics.measure.pairing import contributions
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.provenance import packed
from ptq_dynamics.provenance.archive import Archive, Result
from ptq_dynamics.provenance.differences import differences
from ptq_dynamics.provenance.packed import RELEASE

Verdict = Literal["equal", "within tolerance", "different", "not judged", "only in one"]
# Standard errors of a difference that count as chance.
TOLERANCE = 2.0


@dataclass(frozen=True)
class Compared:
    """One measurement in both builds: values, the standard error of their difference, whether that
    is paired block by block (else it is bounded by the errors of both), and the verdict. Where they
    differ and no error is known, they are not judged."""

    key: tuple[str, ...]
    one: float | None
    other: float | None
    error: float | None
    paired: bool
    verdict: Verdict

    def content(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


class Build:
    """What lies in a folder of results: its table and, where they are there, raw results and
    records. `path` is that folder or the table."""

    def __init__(self, path: Path) -> None:
        self.path = path / MEASUREMENTS if path.is_dir() else path
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
        if frame.empty:
            raise Problem(f"{self.path} has no measurements")
        if not frame.index.is_unique:
            raise Problem(f"{self.path} has a measurement twice; it was not made by a build")
        return frame

    @cached_property
    def archive(self) -> Archive:
        """Records of all its results, that of the figures left out; of a release, those in its
        archive too."""
        return Archive([self.path.parent], [self.path.with_name(RELEASE)])

    @cached_property
    def code(self) -> codes.Table:
        """What the code of its results was, as far as it says so."""
        released = packed.code(self.path.with_name(RELEASE))
        return {**released, **codes.known(self.path.with_name(codes.FOLDER))}

    @cached_property
    def _table_record(self) -> Record | None:
        for result in self.archive.results.values():
            if result.place == self.path.with_name(f"{self.path.stem}.{RECORD}"):
                return result.record
        return None

    @property
    def _inputs(self) -> Mapping[str, list[str]]:
        """Manifests that the table was joined from, by label, as its record has them."""
        return self._table_record.job["inputs"] if self._table_record else {}

    def blocks(self, metric: Paired, series: Series) -> dict[str, np.ndarray]:
        """Contribution of every block to a metric, by checkpoint; none without raw results."""
        try:
            inputs = {
                key: [self._input(path) for path in group]
                for key, group in self._inputs.items()
                if key.startswith("losses ") and key.split(" ")[1] == series.trajectory
            }
            return contributions(metric, series, inputs)
        except (Problem, KeyError):
            return {}

    def _input(self, path: str) -> Manifest:
        """What the table was joined from, in this folder, whatever that is called now."""
        found = manifest.read(self.path.parent / _place(path))
        if self._table_record is None or self._table_record.inputs[path] != found.digest():
            raise Problem(f"{found.path} is not what {self.path} was joined from")
        return found


def compare(one: Build, other: Build) -> Iterator[Compared]:
    """Every measurement that either build has, in the order of their keys."""
    first, second = one.table, other.table
    in_common = first.index.intersection(second.index)
    errors = dict(_paired(one, other, first.loc[in_common]))
    found = [_numbers(first), _numbers(second)]
    for key in sorted({*first.index, *second.index}):
        if key not in in_common:
            values = [numbers[key][0] if key in numbers else None for numbers in found]
            yield Compared(key, values[0], values[1], None, False, "only in one")
            continue
        (value, own), (theirs, its) = (numbers[key] for numbers in found)
        if value == theirs or (math.isnan(value) and math.isnan(theirs)):
            yield Compared(key, value, theirs, None, False, "equal")
            continue
        paired = key in errors
        error = errors[key] if paired else _bound(own, its)
        yield Compared(key, value, theirs, error, paired, _verdict(value - theirs, error))


def _verdict(difference: float, error: float | None) -> Verdict:
    if error is None and math.isfinite(difference):
        return "not judged"
    inside = error is not None and abs(difference) <= TOLERANCE * error
    return "within tolerance" if inside else "different"


def _numbers(table: pd.DataFrame) -> dict[tuple[str, ...], tuple[float, float]]:
    """Value and standard error of every measurement."""
    return dict(zip(table.index, zip(table[VALUE], table[ERROR], strict=True), strict=True))


def _bound(one: float, other: float) -> float | None:
    if pd.isna(one) or pd.isna(other):
        return None
    return math.hypot(one, other)


def _paired(one: Build, other: Build, rows: pd.DataFrame) -> Iterator[tuple[Any, float]]:
    """Standard error of the difference of every measurement that blocks are there for."""
    second = other.table
    rows = rows[rows[VALUE] != second.loc[rows.index, VALUE]]
    rows = rows[rows[METRIC].isin(get_args(Paired))]
    for which, group in rows.groupby([TRAJECTORY, SEED, QUANTIZER, METRIC], sort=False):
        name, seed, quantizer, metric = cast(tuple[str, int, str, Paired], which)
        series = Series(name, int(seed), "", quantizer, "", None, None)
        mine, theirs = one.blocks(metric, series), other.blocks(metric, series)
        for key, checkpoint in zip(group.index, group.checkpoint_id, strict=True):
            pair = mine.get(checkpoint), theirs.get(checkpoint)
            if pair[0] is not None and pair[1] is not None and pair[0].shape == pair[1].shape:
                yield key, mean_and_error(pair[0] - pair[1])[1]


@dataclass(frozen=True)
class Parting:
    """The first job whose result differs, in words and by its manifest, and how its specification,
    or what made it, does."""

    job: str
    result: str
    reasons: tuple[str, ...]


def parting(one: Build, other: Build) -> Parting | None:
    """The first result of one build, in the order they are made, that is not the same in the
    other; None where all that both have are. Raises `Problem` where a build has no records."""
    for build in (one, other):
        if not any(result.record.inputs for result in build.archive.results.values()):
            raise Problem(
                f"{build.path.parent} has no records of jobs, so where they part is unknown"
            )
    theirs = {_place(path): result for path, result in other.archive.results.items()}
    for result in one.archive.in_order():
        match = theirs.get(_place(result.path))
        if match is None or result.digest == match.digest:
            continue
        return Parting(
            result.label, result.path, tuple(_reasons(match, result, {**one.code, **other.code}))
        )
    return None


def _reasons(before: Result, now: Result, table: codes.Table) -> Iterator[str]:
    jobs = before.record.job, now.record.job
    yield from differences(*jobs, {}, {**table, **codes.held(jobs[0]), **codes.held(jobs[1])})
    for what in ("machine", "device"):
        old, new = vars(getattr(before.record, what)), vars(getattr(now.record, what))
        yield from (
            f"{what}.{key} {old[key]} → {new[key]}"
            for key in old
            if key not in ("memory", "peak_memory") and old[key] != new[key]
        )
    was, now_by = before.record.by, now.record.by
    if was != now_by:
        yield f"{was} → {now_by}"


def _place(path: str) -> str:
    """Where a result lies below the folder of its scale."""
    return "/".join(Path(path).parts[2:])
