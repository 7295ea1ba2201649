"""What claims and tables read: the points of a trajectory at one seed, each an estimate that shares
its errors with others of the same text, and the terms of inequalities from these."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast, get_args

import numpy as np
import pandas as pd

from ptq_dynamics.claims import estimates
from ptq_dynamics.claims.estimates import Estimate, at_level, independent
from ptq_dynamics.claims.settings import DISTANCE, Inequality, Term
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.settings import ShownRun
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import CHECKPOINT, FULL_PRECISION, LOSS, MEAN, QUANTIZED, Paired
from ptq_dynamics.measure.pairing import contributions
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.train.settings import TRAINING
from ptq_dynamics.train.trajectory import CURVE

POINT = ["id", "step", "tokens", "value"]
# Beyond the last point by less than this share, a curve is read at its end.
ROUNDING = 1e-9


class NotMeasured(Exception):
    """Why a term has no value, in words."""


class Readings:
    """The points of all series and runs, from the inputs under their labels; `between`: the
    standard deviation between calibration sets by metric and quantizer, as far as it is known."""

    def __init__(
        self,
        series: Sequence[Series],
        runs: Sequence[ShownRun],
        inputs: Mapping[str, Sequence[Manifest]],
        between: Mapping[tuple[str, str], float] | None = None,
    ) -> None:
        self._inputs, self.between = inputs, between or {}
        self._series = {(one.trajectory, one.quantizer, one.seed): one for one in series}
        self._runs = {(run.name, run.seed): run for run in runs}
        self.branches = {run.name: run for run in runs if run.trunk is not None}

    @cache
    def points(self, name: str, metric: str, quantizer: str, seed: int) -> Any:
        """A metric along a trajectory under a quantizer, at a seed, or at the first of a trajectory
        that has not this one: id, step, tokens and value (an `Estimate`) of every checkpoint in
        their order, or of every record of a training curve; none where it was not measured."""
        known: Iterable[tuple[Any, ...]] = self._runs if metric in TRAINING else self._series
        seeds = [each[-1] for each in known if each[0] == name]
        own = seed if seed in seeds else next(iter(seeds), seed)
        rows: Any
        if metric == DISTANCE:
            # How far quantization moves the weights at the end, which is exact for these weights.
            found = self._inputs.get(f"landscape {name} {quantizer}", ())
            values = [Estimate(float(each.facts["distance_quantized"])) for each in found]
            return pd.DataFrame({"value": values}).reindex(columns=POINT)
        if metric in TRAINING and (run := self._runs.get((name, own))):
            rows = pd.read_csv(self._inputs[run.label][0].file(CURVE))
            return rows.assign(value=[*map(Estimate, rows[metric])]).reindex(columns=POINT)
        series = self._series.get((name, quantizer, own))
        rows, blocks = self._rows(series, metric), dict[str, np.ndarray]()
        if series and metric in get_args(Paired) and len(rows):
            blocks = contributions(cast(Paired, metric), series, self._inputs)
        rows = rows[rows.task.fillna(MEAN) == MEAN].fillna({"stderr": 0.0})
        # Equally many blocks are taken to be the same text, as figures do (see `pairing`).
        values = [
            estimates.of_parts(blocks[row.id], f"text of {len(blocks[row.id])} blocks")
            if row.id in blocks
            else independent(row.value, row.stderr, f"{metric} of {name} {row.id} at seed {own}")
            for row in rows.itertuples()
        ]
        return rows.assign(value=values)[POINT]

    def scores(self, name: str, metric: str, quantizer: str, seed: int) -> Any:
        """A metric of tasks at the last checkpoint of a trajectory: task, value and stderr of every
        task and of the mean over those that count; none where it was not measured."""
        rows = self._rows(self._series.get((name, quantizer, seed)), metric)
        return rows[rows.id == rows.id.iloc[-1]] if len(rows) else rows

    def _rows(self, series: Series | None, metric: str) -> Any:
        table = self._table(series)
        return table[table.metric == metric].sort_values(["step", "tokens"], kind="stable")

    @cache
    def _table(self, series: Series | None) -> pd.DataFrame:
        found = measurements.join([series] if series else [], self._inputs)
        return found.rename(columns={CHECKPOINT: "id"}).astype({"step": float, "tokens": float})


def deviations(
    inequalities: Sequence[Inequality], readings: Readings
) -> dict[tuple[str, str], float]:
    """The standard deviation between the calibration sets of a quantizer, wherever some inequality
    reads it with several: pooled over the last checkpoints of its trajectories at all seeds. Who
    has one set alone takes this as the error of that."""
    seeds = sorted({seed for one in inequalities for seed in one.seeds})
    several = (one for one in inequalities if len(one.draws) > 1)
    every = ((name, o.metric, o.draws) for o in several for term in o.terms for name in term.of)
    variances = dict[tuple[str, str], list[float]]()
    for name, metric, draws in dict.fromkeys(every):
        for seed in seeds:
            found = (readings.points(name, metric, draw, seed).value[-1:] for draw in draws)
            values = [end.value for ends in found for end in ends]
            # A run that diverged under one of them says nothing of the others.
            if len(values) == len(draws) and np.isfinite(values).all():
                variances.setdefault((metric, draws[0]), []).append(float(np.var(values, ddof=1)))
    return {key: math.sqrt(float(np.mean(found))) for key, found in variances.items()}


@dataclass(frozen=True)
class Terms:
    """Values of terms of a metric at one of the seeds under one of the draws of a quantizer."""

    readings: Readings
    metric: str
    draws: tuple[str, ...]
    seeds: tuple[int, ...]
    seed: int = 0
    draw: str = FULL_PRECISION

    def __str__(self) -> str:
        return f"{self.metric} under {self.draw} at seed {self.seed}"

    def at_all(self, read: Callable[["Terms"], Sequence[Estimate]]) -> list[list[list[Estimate]]]:
        """What is read at every seed under every draw."""
        return [
            [[*read(replace(self, seed=seed, draw=draw))] for draw in self.draws]
            for seed in self.seeds
        ]

    def value(self, term: Term | float) -> Estimate:
        """The value of a term; raises `NotMeasured` where a measurement is missing."""
        if not isinstance(term, Term):
            return Estimate(float(term))
        found = self._correlation(term, term.against) if term.against else self._taken(term)
        if term.less is not None:
            found = found - self.value(term.less)
        return found if term.per is None else found / self.value(term.per)

    def points(self, name: str) -> Any:
        """The points of the metric, where it has one calibration set alone with the error of that,
        as far as it is known."""
        points = self.readings.points(name, self.metric, self.draw, self.seed)
        if points.empty:
            under = "" if self.draw == FULL_PRECISION else f" under {self.draw}"
            raise NotMeasured(f"{self.metric} of {name}{under} is not measured")
        error = self.readings.between.get((self.metric, self.draw), 0.0)
        if len(self.draws) != 1 or not error:
            return points
        source = f"calibration of {name}, {self}, checkpoint "
        own = [independent(0.0, error, source + id_) for id_ in points.id]
        return points.assign(value=points.value + own)

    def _taken(self, term: Term) -> Estimate:
        """The mean; or the value here of what is most extreme in the mean over all seeds and draws,
        so that what is taken is the same for all of them, with the error of having taken it."""
        own = self._read(term)
        if term.take == "mean":
            return estimates.mean(own)
        every = self.at_all(lambda terms: terms._read(term))
        values = [[[each.value for each in read] for read in of_seed] for of_seed in every]
        by_seed = np.mean(values, axis=1)
        together = by_seed.mean(axis=0)
        place = int(together.argmax() if term.take == "largest" else together.argmin())
        spread = float(by_seed[:, place].std(ddof=1)) if len(by_seed) > 1 else 0.0
        read = term.model_copy(update={"less": None, "per": None})
        source = f"having taken {self.metric}, {read}"
        return own[place] + estimates.selection(len(own), max(own[place].stderr, spread), source)

    def _read(self, term: Term) -> list[Estimate]:
        """The values that a term is the mean of, or the most extreme."""
        if term.loss_of:
            return [self._at_loss(name, term.loss_of) for name in term.of]
        if term.rise is not None:
            return [self._at_rise(name, term.rise) for name in term.of]
        # Equal tokens are those where the first of some trajectories ends.
        tokens = min([self.points(each).tokens.iloc[-1] for each in term.tokens_of], default=None)
        if term.over is None:
            return [self._at_tokens(name, term.at, tokens) for name in term.of]
        found = list[Estimate]()
        for name in term.of:
            values = self._over(name, term.over, tokens)
            source = f"records of {name}, {self}, {term.over}"
            if self.metric in TRAINING and len(values) < 3:
                raise NotMeasured("too few records of a training curve lie there")
            found += [estimates.of_records(values, source)] if self.metric in TRAINING else values
        return found

    def _at_tokens(self, name: str, share: float, tokens: float | None) -> Estimate:
        """Read at a number of tokens, or at a share of those of the trajectory."""
        points = self.points(name)
        if tokens is None and share in (0, 1):
            return points.value.iloc[-1 if share else 0]
        first, last = points.tokens.iloc[[0, -1]]
        level = first + share * (last - first) if tokens is None else tokens
        if math.isclose(level, last, rel_tol=ROUNDING):
            level = last
        curve = map(Estimate, points.tokens), points.value
        found = at_level(*curve, Estimate(level), f"bend of {name} by tokens, {self}")
        if found is None:
            raise NotMeasured(f"{name} is not measured at {level:,.0f} tokens")
        return found

    def _over(self, name: str, shares: tuple[float, float], tokens: float | None) -> list[Estimate]:
        """At all points from one share of the tokens to another: of the trajectory, or of some."""
        points = self.points(name)
        start, end = points.tokens.iloc[[0, -1]] if tokens is None else (0.0, tokens)
        low, high = (start + share * (end - start) for share in shares)
        slack = ROUNDING * abs(end)
        found = points[points.tokens.between(low - slack, high + slack)]
        if found.empty:
            raise NotMeasured(f"{name} is not measured there")
        return [*found.value]

    def _at_rise(self, name: str, side: str) -> Estimate:
        """Read at the checkpoint before or after the greatest rise of the loss in full precision.
        The loss says where, so that no value is read because it is large."""
        losses = replace(self, metric=LOSS, draw=FULL_PRECISION).points(name)
        rises = np.diff([loss.value for loss in losses.value])
        if not (rises > 0).any():
            raise NotMeasured(f"the loss of {name} never rises")
        return self.points(name).value.iloc[int(np.nanargmax(rises)) + (side == "after")]

    def _at_loss(self, name: str, others: Sequence[str]) -> Estimate:
        """Read where the loss in full precision was that with which the worst of some trajectories
        ends, for the last time, along the run and its trunk before."""
        loss = replace(self, metric=LOSS, draw=FULL_PRECISION)
        ends = [loss.points(each).value.iloc[-1] for each in others]
        level = ends[int(np.argmax([end.value for end in ends]))]
        both = loss._lineage(name).merge(self._lineage(name), on="id")
        found = at_level(both.value_x, both.value_y, level, f"bend of {name} by loss, {self}")
        if found is None:
            raise NotMeasured(f"{name} never has a loss of {level.value:.4g}")
        return found

    def _lineage(self, name: str) -> Any:
        """The points of a run, after those of its trunk before it branches off."""
        own, run = self.points(name), self.readings.branches.get(name)
        trunk = "" if run is None else str(run.trunk)
        if self.readings.points(trunk, self.metric, self.draw, self.seed).empty:
            return own
        before = self.points(trunk)
        return pd.concat([before[before.step < own.step.min()], own])

    def _correlation(self, term: Term, other: str) -> Estimate:
        """Spearman's ρ of two metrics; runs that branch off one trunk, and it, are one group."""
        draw = self.draw if other in QUANTIZED else FULL_PRECISION
        against = replace(self, metric=other, draw=draw)
        found = []
        for name in term.of:
            run, points = self.readings.branches.get(name), self.points(name)
            group, at = (name, None) if run is None else (str(run.trunk), run.at)
            points = (points if term.over else points[-1:]).merge(against.points(name), on="id")
            # Where a run branches off, it has the weights of its trunk.
            owner = np.where(points.step_x == at, group, name)
            found.append(points.assign(group=group, owner=owner))
        table = pd.concat(found).drop_duplicates(["owner", "id"])
        for key in ("value_x", "value_y"):
            table[key] = [each.value for each in table[key]]
        groups = [part[["value_x", "value_y"]] for _, part in table.groupby("group", sort=False)]
        source = f"correlation with {other} of {term.of}, {self}"
        return estimates.correlation([part.to_numpy(np.float64) for part in groups], source)
