"""What a figure reads: one value for every trajectory, checkpoint and seed, or over all seeds."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import cast, get_args

import numpy as np
import pandas as pd

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.measure import names
from ptq_dynamics.measure.joining import join
from ptq_dynamics.measure.pairing import contributions, errors_of_comparison
from ptq_dynamics.measure.settings import Series

# What tells a measurement of one metric and quantizer from all others.
POINT = [names.TRAJECTORY, names.SEED, names.CHECKPOINT]


class Readings:
    """The measurements that a figure's query names.

    Where a quantizer has several calibration draws, a value is the mean over them. Where a
    trajectory has several seeds, a point is the mean over them, and its error one standard
    deviation of them: their spread, not the error of their mean. With one seed it is one standard
    error; that of losses and their differences is without what validation blocks have in common in
    most points of one quantizer, so that points are compared by it (see
    `pairing.errors_of_comparison`), and with the error of the draws.
    """

    def __init__(self, settings: FigureSettings, inputs: Mapping[str, Sequence[Manifest]]) -> None:
        self._settings, self._inputs = settings, inputs
        self._draws = {shown.name: shown.draws for shown in settings.quantizers}
        self._table = join(settings.series, inputs)

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that were measured."""
        return sorted({*self._table.metric})

    def series(self, trajectory: str, quantizer: str | None) -> list[Series]:
        """The series of a trajectory, one a seed and calibration draw."""
        used = self._used(quantizer)
        found = [one for one in self._settings.series if one.quantizer in used]
        return [one for one in found if one.trajectory == trajectory]

    def _used(self, quantizer: str | None) -> tuple[str, ...]:
        return (names.FULL_PRECISION,) if quantizer is None else self._draws[quantizer]

    @cache
    def rows(self, metric: str, quantizer: str | None) -> pd.DataFrame:
        """The rows of a metric, one for every trajectory, seed and checkpoint; of metrics of tasks,
        one for every task as well."""
        point = [*POINT, names.TASK] if metric in names.TASK_METRICS else POINT
        table = self._table[self._table.metric == metric]
        table = table[table.quantizer.isin(self._used(quantizer))]
        values = table.groupby(point, sort=False, dropna=False)[names.VALUE]
        draws = values.transform("size")
        spread = (values.transform("std") / draws**0.5).where(draws > 1, 0)
        table = table.assign(value=values.transform("mean")).drop_duplicates(point)
        if metric not in get_args(names.Paired):
            # With several draws, the error of their mean is at most that of each.
            return table.assign(stderr=np.hypot(table.stderr, spread[table.index]))
        errors = self._errors_of_comparison(cast(names.Paired, metric), quantizer)
        seeds = [None if seed is pd.NA else seed for seed in table.seed]
        points = zip(table.trajectory, seeds, table.checkpoint_id, strict=True)
        own = [errors[point] for point in points]
        return table.assign(stderr=np.hypot(own, spread[table.index]))

    def _errors_of_comparison(
        self, metric: names.Paired, quantizer: str | None
    ) -> dict[tuple[str, int | None, str], float]:
        """By trajectory, seed and checkpoint id, over the mean of all draws."""
        draws: dict[tuple[str, int | None, str], list[np.ndarray]] = {}
        for series in self._settings.series:
            if series.quantizer in self._used(quantizer):
                found = contributions(metric, series, self._inputs)
                for name, blocks in found.items():
                    point = (series.trajectory, series.seed, name)
                    draws.setdefault(point, []).append(blocks)
        means = {point: np.mean(found, axis=0) for point, found in draws.items()}
        return errors_of_comparison(means)

    def select(self, metric: str, quantizer: str | None) -> pd.DataFrame:
        """The same over seeds."""
        point = (
            [names.CHECKPOINT, names.TASK] if metric in names.TASK_METRICS else [names.CHECKPOINT]
        )
        return over_seeds(self.rows(metric, quantizer), *point)


def over_seeds(table: pd.DataFrame, *point: str) -> pd.DataFrame:
    """One row for every trajectory and point (see `Readings`)."""
    values = table.groupby([names.TRAJECTORY, *point], sort=False)[names.VALUE]
    several = values.transform("size") > 1
    if not several.any():
        return table
    mean = values.transform("mean").where(several, table.value)
    spread = values.transform("std").where(several, table.stderr)
    return table.assign(value=mean, stderr=spread).drop_duplicates([names.TRAJECTORY, *point])
