"""From terms of inequalities to estimates, at one seed and one draw of calibration sets."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from ptq_dynamics.claims.estimates import (
    Estimate,
    at_level,
    correlation,
    independent,
    mean,
    selection,
)
from ptq_dynamics.claims.readings import Point, Readings
from ptq_dynamics.claims.settings import Place, Term
from ptq_dynamics.measure.names import LOSS, QUANTIZED
from ptq_dynamics.train.settings import TRAINING

# By metric and quantizer: one standard deviation between calibration sets (see `deviations`).
Deviations = Mapping[tuple[str, str], float]
# Beyond the last point by less than this share, a curve is read at its end.
ROUNDING = 1e-9


class NotMeasured(Exception):
    """Why a term has no value, in words."""


def deviations(terms: Iterable[Term], seeds: Iterable[int], readings: Readings) -> Deviations:
    """The standard deviation between the calibration sets of a quantizer, wherever some terms read
    it with several: pooled over the last checkpoints of their trajectories at all seeds. Who has
    one set alone takes this as the error of that."""
    variances = dict[tuple[str, str], list[float]]()
    several = (term for term in terms if len(term.draws) > 1)
    every = dict.fromkeys((name, t.metric, t.draws) for t in several for name in t.of)
    for name, metric, draws in every:
        for seed in seeds:
            ends = [readings.points(name, metric, draw, seed)[-1:] for draw in draws]
            values = [point.value.value for points in ends for point in points]
            # A run that diverged under one of them says nothing of the others.
            if len(values) == len(draws) and np.isfinite(values).all():
                variance = float(np.var(values, ddof=1))
                variances.setdefault((metric, draws[0]), []).append(variance)
    return {key: math.sqrt(float(np.mean(found))) for key, found in variances.items()}


class Terms:
    """Values of terms at one seed and one of their quantizer's draws, by number; `every`: all seeds
    and draws, by which the largest and the smallest are told."""

    def __init__(
        self,
        readings: Readings,
        seed: int,
        draw: int,
        every: Sequence[tuple[int, int]] = (),
        between_sets: Deviations = MappingProxyType({}),
    ) -> None:
        self._readings, self._seed, self._draw = readings, seed, draw
        self._every, self._between_sets = every or ((seed, draw),), between_sets

    def value(self, term: Term | float) -> Estimate:
        """The value of a term; raises `NotMeasured` where a measurement is missing."""
        if not isinstance(term, Term):
            return Estimate(float(term))
        found = self._correlation(term) if term.against else self._taken(term)
        if term.less is not None:
            found = found - self.value(term.less)
        return found if term.per is None else found / self.value(term.per)

    def _quantizer(self, term: Term) -> str | None:
        return term.draws[min(self._draw, len(term.draws) - 1)] if term.draws else None

    def _points(self, name: str, metric: str, quantizer: str | None) -> list[Point]:
        found = self._readings.points(name, metric, quantizer, self._seed)
        if not found:
            where = f" under {quantizer}" if quantizer else ""
            raise NotMeasured(f"{metric} of {name}{where} is not measured")
        return found

    def _measured(self, name: str, term: Term) -> list[Point]:
        """The points of a term's metric, where it has one calibration set alone with the error of
        that, as far as it is known."""
        quantizer = self._quantizer(term)
        points = self._points(name, term.metric, quantizer)
        error = self._between_sets.get((term.metric, quantizer or ""), 0.0)
        if len(term.draws) != 1 or not error:
            return points
        source = f"calibration of {name} under {quantizer} at seed {self._seed}, checkpoint "
        return [
            replace(each, value=each.value + independent(0.0, error, source + each.id))
            for each in points
        ]

    def _read(self, term: Term) -> list[Estimate]:
        """The values that a term is the mean of, or the most extreme."""
        found = list[Estimate]()
        for name in term.of:
            if term.at.start is None:
                found.append(self._at(name, term))
                continue
            values = [point.value for point in self._stretch(name, term)]
            source = f"records of {name} at seed {self._seed}, {term.at}"
            found += [_window(values, source)] if term.metric in TRAINING else values
        return found

    def _taken(self, term: Term) -> Estimate:
        """The mean; or the value here of what is most extreme in the mean over all seeds and draws,
        so that what is taken is the same for all of them, with the error of having taken it."""
        own = self._read(term)
        if term.take == "mean":
            return mean(own)
        seeds = dict[int, list[list[float]]]()
        for seed, draw in self._every:
            other = Terms(self._readings, seed, draw, self._every, self._between_sets)
            seeds.setdefault(seed, []).append([each.value for each in other._read(term)])
        if any(len(found) != len(own) for each in seeds.values() for found in each):
            raise NotMeasured("seeds are not measured at as many points")
        by_seed = np.array([np.mean(each, axis=0) for each in seeds.values()])
        values = by_seed.mean(axis=0)
        place = int(values.argmax() if term.take == "largest" else values.argmin())
        spread = float(by_seed[:, place].std(ddof=1)) if len(by_seed) > 1 else 0.0
        source = f"having taken the {term.take} of {term.metric}, {term.of}, {term.at}"
        return own[place] + selection(len(own), max(own[place].stderr, spread), source)

    def _at(self, name: str, term: Term) -> Estimate:
        if term.at.loss_of:
            return self._at_loss(name, term)
        points = self._measured(name, term)
        if term.at.rise is not None:
            return self._at_rise(name, points, term.at.rise)
        if term.at in (Place(), Place(end=0)):
            return points[-1 if term.at.end else 0].value
        points = [point for point in points if math.isfinite(point.tokens)]
        if not points:
            raise NotMeasured(f"{name} has no checkpoints with a number of tokens")
        first, last = points[0].tokens, points[-1].tokens
        level = first + term.at.end * (last - first)
        if term.at.tokens_of:
            level = self._shortest(term)
            level = last if math.isclose(level, last, rel_tol=ROUNDING) else level
        both = [(Estimate(point.tokens), point.value) for point in points]
        found = self._between(name, term, both, Estimate(level), "tokens")
        if found is None:
            raise NotMeasured(f"{name} is not measured at {level:,.0f} tokens")
        return found

    def _between(
        self,
        name: str,
        term: Term,
        both: Sequence[tuple[Estimate, Estimate]],
        level: Estimate,
        by: str,
    ) -> Estimate | None:
        where = f"{term.metric} of {name} under {self._quantizer(term)} between points, by {by}"
        xs, ys = [x for x, _ in both], [y for _, y in both]
        return at_level(xs, ys, level, f"{where}, seed {self._seed}")

    def _shortest(self, term: Term) -> float:
        """The tokens at which the first of the trajectories ends at whose tokens it is read."""
        quantizer = self._quantizer(term)
        return min(self._points(n, term.metric, quantizer)[-1].tokens for n in term.at.tokens_of)

    def _at_rise(self, name: str, points: Sequence[Point], side: str) -> Estimate:
        """Read at the checkpoint before or after the greatest rise of the loss in full precision.
        The loss says where, so that no value is read because it is large."""
        losses = [
            each for each in self._points(name, LOSS, None) if math.isfinite(each.value.value)
        ]
        rises = [
            (after.value.value - before.value.value, before.id, after.id)
            for before, after in pairwise(losses)
        ]
        if not rises or max(rises)[0] <= 0:
            raise NotMeasured(f"the loss of {name} never rises")
        wanted = max(rises)[1 if side == "before" else 2]
        found = {each.id: each.value for each in points}
        if wanted not in found:
            raise NotMeasured(f"{name} is not measured at its checkpoint {wanted}")
        return found[wanted]

    def _at_loss(self, name: str, term: Term) -> Estimate:
        """Read where the loss in full precision was that with which the worst of some trajectories
        ends, for the last time, along the run and its trunk before."""
        ends = [self._points(each, LOSS, None)[-1].value for each in term.at.loss_of]
        if not all(math.isfinite(end.value) for end in ends):
            raise NotMeasured(f"one of {', '.join(term.at.loss_of)} ends with no finite loss")
        level = max(ends, key=lambda each: each.value)
        losses = self._lineage(name, term.model_copy(update={"metric": LOSS, "draws": ()}))
        points = {point.id: point for point in self._lineage(name, term)}
        both = [(each.value, points[each.id].value) for each in losses if each.id in points]
        found = self._between(name, term, both, level, "loss")
        if found is None:
            raise NotMeasured(f"{name} never has a loss of {level.value:.4g}")
        return found

    def _lineage(self, name: str, term: Term) -> list[Point]:
        """The points of a run, after those of its trunk before it branches off."""
        own, run = self._measured(name, term), self._readings.branch(name)
        if run is None or run.trunk is None:
            return own
        if not self._readings.points(run.trunk, term.metric, self._quantizer(term), self._seed):
            return own
        before = self._measured(run.trunk, term)
        first = min((point.step for point in own if point.step is not None), default=run.at or 0)
        return [each for each in before if each.step is not None and each.step < first] + own

    def _stretch(self, name: str, term: Term) -> list[Point]:
        """The points of a trajectory from one share of its tokens to another."""
        points = self._measured(name, term)
        start, end = points[0].tokens, points[-1].tokens
        if term.at.tokens_of:
            start, end = 0.0, self._shortest(term)
        low, high = (start + share * (end - start) for share in (term.at.start or 0, term.at.end))
        slack = ROUNDING * abs(end)
        found = [each for each in points if low - slack <= each.tokens <= high + slack]
        if not found:
            raise NotMeasured(f"{name} is not measured there")
        return found

    def _correlation(self, term: Term) -> Estimate:
        """Spearman's ρ of two metrics; runs that branch off one trunk, and it, are one group."""
        groups, seen = dict[str, list[tuple[float, float]]](), set[tuple[str, str]]()
        quantizer, other = self._quantizer(term), str(term.against)
        for name in term.of:
            run = self._readings.branch(name)
            group = name if run is None else str(run.trunk)
            under = quantizer if other in QUANTIZED else None
            against = {each.id: each.value.value for each in self._points(name, other, under)}
            points = self._points(name, term.metric, quantizer)
            for point in points if term.at.start is not None else points[-1:]:
                # Where a run branches off, it has the weights of its trunk.
                forks = run is not None and point.step == run.at
                key = (group if forks else name, point.id)
                if point.id in against and key not in seen:
                    seen.add(key)
                    groups.setdefault(group, []).append((point.value.value, against[point.id]))
        source = f"{term.metric} and {other} of {', '.join(term.of)} under {quantizer}"
        points_of = [np.array(points) for points in groups.values()]
        if not all(np.isfinite(points).all() for points in points_of):
            raise NotMeasured(f"{term.metric} or {other} is not finite somewhere")
        found = correlation(points_of, source)
        if not math.isfinite(found.value):
            raise NotMeasured(f"there are too few trajectories with {term.metric} and {other}")
        return found


def _window(records: Sequence[Estimate], source: str) -> Estimate:
    """The mean of the records of a stretch, and its standard error, which counts that neighbours
    are alike, by their correlation."""
    values = np.array([each.value for each in records])
    n = len(values)
    if n < 3:
        raise NotMeasured("too few records of a training curve lie there")
    rest = values - values.mean()
    power = float((rest**2).sum())
    alike = float((rest[1:] * rest[:-1]).sum()) / power if power else 0.0
    alike = min(max(alike, 0.0), 1 - 1 / n)
    variance = power / (n - 1) / n * (1 + alike) / (1 - alike)
    return independent(float(values.mean()), math.sqrt(variance), source)
