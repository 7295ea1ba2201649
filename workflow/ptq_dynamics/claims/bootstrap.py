"""Metrics along trajectories, with bootstrap replicates.

Values have a column for each replicate; the first holds the measured values. Every other one
resamples validation blocks and calibration sets, the same ones for all trajectories. Shared
variation therefore cancels in differences and ratios."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from typing import NamedTuple, get_args

import numpy as np
import pandas as pd

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.labels import ShownRun
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import CHECKPOINT_ID, FULL_PRECISION, INCREASE, LOSS, MEAN, Paired
from ptq_dynamics.measure.series import Series
from ptq_dynamics.train.settings import TRAINING
from ptq_dynamics.trajectories.trajectory import CURVE, Trajectory

REPLICATES = 4000
LEAST = 3  # a run with fewer residuals uses those of all runs


@dataclass(eq=False)
class NotMeasured(Exception):
    """A number has no value; claims publish the `reason`."""

    reason: str


class Curve(NamedTuple):
    """A metric along a trajectory: ids, steps, tokens [checkpoints]; values [..., replicates]."""

    ids: Sequence[str]
    steps: np.ndarray
    tokens: np.ndarray
    values: np.ndarray


def random(key: str) -> np.random.Generator:
    """Return a generator that is seeded by a text."""
    return np.random.default_rng([*hashlib.sha256(key.encode()).digest()])


@cache
def weights(key: str, count: int) -> np.ndarray:
    """Return bootstrap weights of unbiased variance for parts, float64 [`count`, replicates]."""
    drawn = random(f"{key} {count}").multinomial(count, np.full(count, 1 / count), REPLICATES)
    off = (drawn.T - 1) * ((count / (count - 1)) ** 0.5 if count > 1 else 0.0)
    off[:, 0] = 0.0
    return np.asarray((1 + off) / count)


class Bootstrap:
    """Resampled curves of some series and runs, from raw results by label."""

    def __init__(
        self,
        series: Iterable[Series],
        runs: Iterable[ShownRun],
        draws: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Sequence[Manifest]],
    ) -> None:
        self.series = {(one.trajectory, one.quantizer, one.seed): one for one in series}
        self.runs = {(run.name, run.seed): run for run in runs}
        self.trunks = {run.name: run.trunk for run in self.runs.values()}
        self.draws, self.inputs = draws, inputs
        self._curves = dict[tuple[str, str, str, int], Curve]()
        self._off = dict[tuple[str, str], dict[str, list[float]]]()

    def rates(self, name: str, seed: int) -> tuple[np.ndarray, float]:
        """Return the learning rates of the measured checkpoints of a run, and the peak rate."""
        rows = self._rows(self.series[name, FULL_PRECISION, seed])
        rows = rows[rows.metric == LOSS].sort_values(["step", "tokens"])
        facts = self.inputs[self.runs[name, seed].label][0].facts
        return rows.lr.to_numpy(float), facts["schedule"]["peak"]

    def sets(self, quantizer: str) -> Sequence[str]:
        """Return the names of a quantizer in series, one for each calibration set."""
        return self.draws.get(quantizer, (quantizer,))

    def of(self, name: str, metric: str, quantizer: str, seed: int) -> Curve:
        """Return a metric along a trajectory, the mean over calibration sets; or `NotMeasured`."""
        # functools.cache would keep the curves of all claims in memory.
        if (key := (name, metric, quantizer, seed)) not in self._curves:
            self._curves[key] = self._of(*key)
        return self._curves[key]

    def _of(self, name: str, metric: str, quantizer: str, seed: int) -> Curve:
        if metric in TRAINING and (run := self.runs.get((name, seed))):
            rows = pd.read_csv(self.inputs[run.label][0].file(CURVE))
            values = np.repeat(rows[metric].to_numpy(np.float64)[:, None], REPLICATES, axis=1)
            steps, tokens = (rows[key].to_numpy(np.float64) for key in ("step", "tokens"))
            return Curve([*map(str, rows.step)], steps, tokens, values)
        # Public checkpoints have no seed.
        keys = product([name], self.sets(quantizer), (seed, None))
        measured = [self.series[key] for key in keys if key in self.series]
        curves = [self._of_series(series, metric) for series in measured]
        if not curves or not len(curves[0].ids):
            under = "" if quantizer == FULL_PRECISION else f" under {quantizer}"
            raise NotMeasured(f"{metric} of {name}{under} is not measured at seed {seed}")
        shares = weights(f"draws of {quantizer}", len(curves))
        values = sum(curve.values * share for curve, share in zip(curves, shares, strict=True))
        return curves[0]._replace(values=values)

    def checkpoint(
        self, name: str, metric: str, quantizer: str, seed: int, place: int
    ) -> np.ndarray:
        """Return a point of a curve [replicates] with rounding noise, which is NaN if unknown."""
        curve, owner = self.of(name, metric, quantizer, seed), self.trunks.get(name) or name
        place %= len(curve.ids)
        if metric not in get_args(Paired) or quantizer == FULL_PRECISION:
            return curve.values[place]
        # The loss changes along a run by more than rounding noise, unlike its increase.
        by_trunk = self._residuals(INCREASE if metric == LOSS else metric, quantizer)
        own = by_trunk.get(owner, [])
        residuals = own if len(own) >= LEAST else [*chain(*by_trunk.values())]
        many = len({seed for other, _, seed in self.series if other == name}) > 1
        noise = np.full(REPLICATES, 0.0 if many else np.nan)  # seeds differ by rounding, too
        if residuals:
            key = f"{name} {metric} {quantizer} {seed} {curve.ids[place]}"
            noise = random(key).choice(residuals, REPLICATES)
        noise[0] = 0.0
        return np.asarray(curve.values[place] + noise)

    def _residuals(self, metric: str, quantizer: str) -> dict[str, list[float]]:
        """Return deviations of checkpoints from the mean of their neighbours, by trunk."""
        if (key := (metric, quantizer)) not in self._off:
            residuals = self._off[key] = defaultdict[str, list[float]](list)
            for name, draw, seed in self.series:
                if draw == self.sets(quantizer)[0]:
                    values = self.of(name, metric, quantizer, seed or 0).values[:, 0]
                    off = (values[1:-1] - (values[:-2] + values[2:]) / 2) / 1.5**0.5
                    residuals[self.trunks.get(name) or name] += off.tolist()
        return self._off[key]

    def _of_series(self, series: Series, metric: str) -> Curve:
        if metric in get_args(Paired):
            rows, values = self._losses(series)
            if metric != LOSS:
                _, full = self._losses(measurements.in_full_precision(series))
                values = values - full if metric == INCREASE else values / full - 1
        else:
            rows = self._rows(series)
            rows = rows[(rows.metric == metric) & (rows.task.fillna(MEAN) == MEAN)]
            noise = random(f"{series} {metric}").standard_normal((len(rows), REPLICATES))
            noise[:, 0] = 0.0
            values = rows[["value"]].to_numpy() + noise * rows[["stderr"]].fillna(0.0).to_numpy()
        steps, tokens = (rows[key].to_numpy(np.float64) for key in ("step", "tokens"))
        order = np.lexsort((tokens, steps))
        return Curve([rows.id.iloc[n] for n in order], steps[order], tokens[order], values[order])

    def _losses(self, series: Series) -> tuple[pd.DataFrame, np.ndarray]:
        """Return checkpoints and losses; equal counts of blocks are taken for the same text."""
        rows, losses = self.blocks(series)
        return rows, losses @ weights(f"blocks {losses.shape[1]}", losses.shape[1])

    def scores(
        self, name: str, metric: str, quantizer: str, seed: int
    ) -> dict[str, tuple[float, float]]:
        """Return a metric and its error by task, and of their mean, at the last checkpoint."""
        if (series := self.series.get((name, quantizer, seed))) is None:
            return {}
        rows = self._rows(series)
        rows = rows[rows.metric == metric].sort_values(["step", "tokens"], kind="stable")
        last = rows[rows.id == rows.id.iloc[-1]] if len(rows) else rows
        values = zip(last.value, last.stderr, strict=True)
        return dict(zip(last.task, values, strict=True))

    def _rows(self, series: Series) -> pd.DataFrame:
        return measurements.join([series], self.inputs).rename(columns={CHECKPOINT_ID: "id"})

    def blocks(self, series: Series) -> tuple[pd.DataFrame, np.ndarray]:
        """Return id, step and tokens of checkpoints, and losses, float64 [checkpoints, blocks]."""
        by_id = measurements.losses_of_blocks(series, self.inputs)
        manifests = measurements.manifests_of(series, self.inputs)
        every = series.places or Trajectory(manifests).checkpoints
        rows = pd.DataFrame(every if by_id else [], columns=["id", "step", "tokens"])
        losses = [by_id[name] for name in rows.id] or [np.empty(1)]
        return rows, np.stack(losses).astype(np.float64)[: len(rows)]
