"""What claims and tables read: the points of a trajectory at one seed, each an estimate that shares
its errors with others of the same text or questions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast, get_args

import numpy as np
import pandas as pd

from ptq_dynamics.claims.estimates import Estimate, exact, independent, of_parts
from ptq_dynamics.claims.names import DISTANCE, DISTANCE_FACT
from ptq_dynamics.claims.settings import Branched
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.settings import ShownRun
from ptq_dynamics.measure import joining
from ptq_dynamics.measure.measurements import degradation
from ptq_dynamics.measure.names import (
    ACCURACY,
    FULL_PRECISION,
    MEAN,
    PROBES,
    QUANTIZED,
    STEP,
    TASK_METRICS,
    TOKENS,
    Paired,
)
from ptq_dynamics.measure.pairing import contributions
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.train.settings import TRAINING
from ptq_dynamics.train.trajectory import CURVE, Checkpoint, Trajectory


@dataclass(frozen=True)
class Point:
    """A metric at a checkpoint, or at a record of a training curve (which has no id)."""

    id: str
    step: int | None
    tokens: float
    value: Estimate


class Readings:
    """The points of all series and runs, from the inputs under their labels."""

    def __init__(
        self,
        series: Sequence[Series],
        runs: Sequence[ShownRun],
        branches: Sequence[Branched],
        inputs: Mapping[str, Sequence[Manifest]],
    ) -> None:
        self._inputs = inputs
        self._series = {(one.trajectory, one.quantizer, one.seed): one for one in series}
        self._runs = {(run.name, run.seed): run for run in runs}
        self._trunks = {each.name: each for each in branches}
        self._seeds = dict[str, list[int]]()
        for name, _, seed in self._series:
            self._seeds.setdefault(name, []).append(seed or 0)
        for name, own in self._runs:
            self._seeds.setdefault(name, []).append(own)

    def trunk(self, name: str) -> Branched | None:
        """What a trajectory branches off, and where."""
        return self._trunks.get(name)

    @cache
    def points(self, name: str, metric: str, quantizer: str | None, seed: int) -> list[Point]:
        """A metric along a trajectory in the order of its checkpoints, under a quantizer or in full
        precision, at a seed, or at the first of a trajectory that has not this one; none where it
        was not measured."""
        seeds = self._seeds.get(name, [])
        if not seeds:
            return []
        own = seed if seed in seeds else seeds[0]
        if metric in TRAINING:
            return self._training(name, metric, own)
        series = self._series.get((name, quantizer or FULL_PRECISION, own))
        if series is None:
            return []
        if metric == DISTANCE:
            return self._distance(series)
        if metric in TASK_METRICS:
            return self._answered(series, metric)
        if metric in get_args(Paired):
            return self._evaluated(series, cast(Paired, metric))
        return self._tabulated(series, metric)

    def scores(
        self, name: str, metric: str, quantizer: str | None, seed: int
    ) -> dict[str, tuple[float, float]]:
        """A metric of tasks at the last checkpoint of a trajectory, with its standard error, by
        task; the mean over them last. None where it was not measured."""
        series = self._series.get((name, quantizer or FULL_PRECISION, seed))
        if series is None:
            return {}
        table = self._table(series)
        rows = table[table.metric == metric]
        if rows.empty:
            return {}
        counted = joining.tasks(series, self._inputs)
        last = Trajectory(joining.manifests_of(series, self._inputs)).checkpoints[-1].id
        rows = rows[rows.checkpoint_id == last].set_index("task")
        return {
            task: (float(rows.value[task]), float(rows.stderr[task])) for task in (*counted, MEAN)
        }

    def _evaluated(self, series: Series, metric: Paired) -> list[Point]:
        manifests = joining.manifests_of(series, self._inputs)
        if not manifests:
            return []
        if metric in QUANTIZED and series.quantizer == FULL_PRECISION:
            return []
        blocks = contributions(metric, series, self._inputs)
        checkpoints = Trajectory(manifests).checkpoints
        # Equally many blocks are taken to be the same text, as figures do (see `pairing`).
        return [
            _point(each, of_parts(blocks[each.id], f"text of {len(blocks[each.id])} blocks"))
            for each in checkpoints
        ]

    def _answered(self, series: Series, metric: str) -> list[Point]:
        """The mean over tasks, with the errors of every task's questions."""
        counted = [name for name, counts in joining.tasks(series, self._inputs).items() if counts]
        if not counted:
            return []
        outcomes = {task: joining.outcomes(series, task, self._inputs) for task in counted}
        fp = joining.in_full_precision(series)
        before = {task: joining.outcomes(fp, task, self._inputs) for task in counted}
        found = []
        for checkpoint in Trajectory(joining.manifests_of(series, self._inputs)).checkpoints:
            pairs = {task: (before[task][checkpoint.id], outcomes[task][checkpoint.id])
                     for task in counted}  # fmt: skip
            value = _accuracy(pairs) if metric == ACCURACY else _degradation(pairs)
            found.append(_point(checkpoint, value))
        return found

    def _distance(self, series: Series) -> list[Point]:
        """How far quantization moves the weights at the end, which is exact for these weights."""
        label = f"landscape {series.trajectory} {series.quantizer}"
        return [
            Point("", None, math.nan, exact(manifest.facts[DISTANCE_FACT]))
            for manifest in self._inputs.get(label, ())
        ]

    def _tabulated(self, series: Series, metric: str) -> list[Point]:
        """What has an error of its own in the table of measurements."""
        if metric in [name for names in PROBES.values() for name in names]:
            series = joining.in_full_precision(series)
        table = self._table(series)
        found = []
        rows = table[table.metric == metric].sort_values([STEP, TOKENS], kind="stable")
        for row in rows.itertuples():
            error: float = 0.0 if pd.isna(row.stderr) else float(row.stderr)  # type: ignore[arg-type]
            source = f"{metric} of {series.trajectory} {row.checkpoint_id} at seed {series.seed}"
            value = independent(float(row.value), error, source)  # type: ignore[arg-type]
            step = None if pd.isna(row.step) else int(row.step)  # type: ignore[arg-type, call-overload]
            tokens = math.nan if pd.isna(row.tokens) else float(row.tokens)  # type: ignore[arg-type]
            found.append(Point(str(row.checkpoint_id), step, tokens, value))
        return found

    @cache
    def _table(self, series: Series) -> pd.DataFrame:
        return joining.join([series], self._inputs)

    def _training(self, name: str, metric: str, seed: int) -> list[Point]:
        """The records of a training curve, each without an error of its own."""
        run = self._runs.get((name, seed))
        if run is None:
            return []
        parts = [pd.read_csv(manifest.file(CURVE)) for manifest in self._inputs[run.label]]
        rows = pd.concat(parts)
        return [
            Point("", int(step), float(tokens), exact(value))
            for step, tokens, value in zip(rows.step, rows.tokens, rows[metric], strict=True)
        ]


def _point(checkpoint: Checkpoint, value: Estimate) -> Point:
    tokens = math.nan if checkpoint.tokens is None else float(checkpoint.tokens)
    return Point(checkpoint.id, checkpoint.step, tokens, value)


Pairs = Mapping[str, tuple[np.ndarray, np.ndarray]]


def _accuracy(pairs: Pairs) -> Estimate:
    """The mean accuracy over tasks."""
    return _over_tasks({task: after for task, (_, after) in pairs.items()})


def _degradation(pairs: Pairs) -> Estimate:
    """That of the mean accuracy, to first order (see `measurements.degradation`)."""
    value, _ = degradation([*pairs.values()])
    full = float(np.mean([before.mean(dtype=np.float64) for before, _ in pairs.values()]))
    if not math.isfinite(value):
        return Estimate(math.nan)
    lost = {
        task: ((1 + value) * before.astype(np.float64) - after) / (1 - full)
        for task, (before, after) in pairs.items()
    }
    return Estimate(value, _over_tasks(lost).errors)


def _over_tasks(values: Mapping[str, np.ndarray]) -> Estimate:
    """The mean over tasks of means over their questions, which tasks have of their own."""
    parts = {task: of_parts(found, f"questions of {task}") for task, found in values.items()}
    errors = {
        source: error / len(parts)
        for each in parts.values()
        for source, error in each.errors.items()
    }
    return Estimate(float(np.mean([each.value for each in parts.values()])), errors)
