"""What claims and tables read: the points of a trajectory at one seed, each an estimate that shares
its errors with others of the same text or questions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast, get_args

import numpy as np
import pandas as pd

from ptq_dynamics.claims.estimates import Estimate, independent, of_parts
from ptq_dynamics.claims.settings import DISTANCE
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.settings import ShownRun
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.measurements import degradation
from ptq_dynamics.measure.names import (
    ACCURACY,
    FULL_PRECISION,
    QUANTIZED,
    TASK_METRICS,
    Paired,
)
from ptq_dynamics.measure.pairing import contributions
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.train.settings import TRAINING
from ptq_dynamics.train.trajectory import CURVE, Trajectory


@dataclass(frozen=True)
class PointRead:
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
        inputs: Mapping[str, Sequence[Manifest]],
    ) -> None:
        self._inputs = inputs
        self._series = {(one.trajectory, one.quantizer, one.seed): one for one in series}
        self._runs = {(run.name, run.seed): run for run in runs}
        self._branches = {run.name: run for run in runs if run.trunk is not None}

    def branch(self, name: str) -> ShownRun | None:
        """A run that leaves its trunk, by its name."""
        return self._branches.get(name)

    @cache
    def points(self, name: str, metric: str, quantizer: str | None, seed: int) -> list[PointRead]:
        """A metric along a trajectory in the order of its checkpoints, under a quantizer or in full
        precision, at a seed, or at the first of a trajectory that has not this one; none where it
        was not measured."""
        if metric == DISTANCE:
            # How far quantization moves the weights at the end, which is exact for these weights.
            found = self._inputs.get(f"landscape {name} {quantizer}", ())
            distances = [float(each.facts["distance_quantized"]) for each in found]
            return [PointRead("", None, math.nan, Estimate(each)) for each in distances]
        known: Mapping[Any, Any] = self._runs if metric in TRAINING else self._series
        seeds = [each[-1] or 0 for each in known if each[0] == name]
        own = seed if seed in seeds else next(iter(seeds), None)
        if metric in TRAINING:
            return self._curve(self._runs.get((name, own or 0)), metric)
        series = self._series.get((name, quantizer or FULL_PRECISION, own))
        return [] if series is None else self._measured(series, metric)

    def scores(
        self, name: str, metric: str, quantizer: str | None, seed: int
    ) -> dict[str, tuple[float, float]]:
        """A metric of tasks at the last checkpoint of a trajectory, with its standard error, by
        task, and of the mean over those that count. None where it was not measured."""
        series = self._series.get((name, quantizer or FULL_PRECISION, seed))
        if series is None:
            return {}
        rows = self._rows(series, metric)
        last = rows[rows.checkpoint_id == rows.checkpoint_id.iloc[-1]] if len(rows) else rows
        return dict(zip(last.task, zip(last.value, last.stderr, strict=True), strict=True))

    def _measured(self, series: Series, metric: str) -> list[PointRead]:
        if metric in TASK_METRICS:
            values = self._answers(series, metric)
        elif metric not in get_args(Paired):
            return self._tabulated(series, metric)
        elif metric in QUANTIZED and series.quantizer == FULL_PRECISION:
            return []
        else:
            blocks = contributions(cast(Paired, metric), series, self._inputs)
            # Equally many blocks are taken to be the same text, as figures do (see `pairing`).
            values = {
                id_: of_parts(each, f"text of {len(each)} blocks") for id_, each in blocks.items()
            }
        checkpoints = Trajectory(measurements.manifests_of(series, self._inputs)).checkpoints
        return [
            PointRead(each.id, each.step, math.nan if each.tokens is None else each.tokens, value)
            for each in checkpoints
            if (value := values.get(each.id)) is not None
        ]

    def _tabulated(self, series: Series, metric: str) -> list[PointRead]:
        """What has an error of its own in the table of measurements."""
        found = []
        for row in self._rows(series, metric).fillna({"stderr": 0.0}).itertuples():
            source = f"{metric} of {series.trajectory} {row.checkpoint_id} at seed {series.seed}"
            value = independent(row.value, row.stderr, source)
            step = None if pd.isna(row.step) else int(row.step)
            tokens = math.nan if pd.isna(row.tokens) else float(row.tokens)
            found.append(PointRead(row.checkpoint_id, step, tokens, value))
        return found

    def _rows(self, series: Series, metric: str) -> Any:
        table = self._table(series)
        return table[table.metric == metric].sort_values(["step", "tokens"], kind="stable")

    @cache
    def _table(self, series: Series) -> pd.DataFrame:
        return measurements.join([series], self._inputs)

    def _answers(self, series: Series, metric: str) -> dict[str, Estimate]:
        """By checkpoint the mean over the tasks that count, with the errors of their questions."""
        known = measurements.tasks(series, self._inputs)
        counted = [task for task, counts in known.items() if counts]
        before, after = (
            {task: measurements.outcomes(each, task, self._inputs) for task in counted}
            for each in (measurements.in_full_precision(series), series)
        )
        found = {}
        for id_ in after[counted[0]] if counted else ():
            right = {task: after[task][id_] for task in counted}
            if metric == ACCURACY:
                found[id_] = _over_tasks(right)
            else:
                found[id_] = _degradation({task: before[task][id_] for task in counted}, right)
        return found

    def _curve(self, run: ShownRun | None, metric: str) -> list[PointRead]:
        """The records of a training curve, each without an error of its own."""
        manifests = () if run is None else self._inputs.get(run.label, ())
        tables = [pd.read_csv(manifest.file(CURVE)) for manifest in manifests]
        return [
            PointRead("", int(step), float(tokens), Estimate(float(value)))
            for table in tables
            for step, tokens, value in zip(table.step, table.tokens, table[metric], strict=True)
        ]


def _degradation(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> Estimate:
    """That of the mean accuracy, to first order (see `measurements.degradation`)."""
    value, _ = degradation([(each, after[task]) for task, each in before.items()])
    full = float(np.mean([each.mean(dtype=np.float64) for each in before.values()]))
    if not math.isfinite(value):
        return Estimate(math.nan)
    lost = {
        task: ((1 + value) * each.astype(np.float64) - after[task]) / (1 - full)
        for task, each in before.items()
    }
    return Estimate(value, _over_tasks(lost).errors)


def _over_tasks(values: Mapping[str, np.ndarray]) -> Estimate:
    """The mean over tasks of means over their questions, which tasks have of their own."""
    parts = [of_parts(found, f"questions of {task}") for task, found in values.items()]
    errors = {k: error / len(parts) for each in parts for k, error in each.errors.items()}
    return Estimate(float(np.mean([each.value for each in parts])), errors)
