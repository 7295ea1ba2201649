"""From terms of inequalities to estimates, at one seed and one draw of calibration sets."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from ptq_dynamics.claims.estimates import Estimate, exact, independent, mean, selection
from ptq_dynamics.claims.interpolation import at_level
from ptq_dynamics.claims.ranks import correlation
from ptq_dynamics.claims.readings import Point, Readings
from ptq_dynamics.claims.settings import Term
from ptq_dynamics.measure.names import LOSS, QUANTIZED
from ptq_dynamics.train.settings import TRAINING

# By metric and quantizer: one standard deviation between calibration sets (see `calibration`).
Deviations = Mapping[tuple[str, str], float]
# Beyond the last point by less than this share, a curve is read at its end.
ROUNDING = 1e-9


class NotMeasured(Exception):
    """Why a term has no value, in words."""


class Terms:
    """Values of terms at one seed and one of their quantizer's draws, by number."""

    def __init__(
        self,
        readings: Readings,
        seed: int,
        draw: int,
        every: Sequence[tuple[int, int]] = (),
        between_sets: Deviations = MappingProxyType({}),
    ) -> None:
        self._readings, self._seed, self._draw = readings, seed, draw
        self._between_sets = between_sets
        # All seeds and draws, by which the largest and the smallest are told.
        self._every = every or ((seed, draw),)

    def value(self, term: Term | float) -> Estimate:
        """The value of a term; raises `NotMeasured` where a measurement is missing."""
        if not isinstance(term, Term):
            return exact(term)
        found = self._correlation(term) if term.against else self._taken(term)
        if term.less is not None:
            found = found - self.value(term.less)
        return found if term.per is None else found / self.value(term.per)

    def _loss_level(self, names: Sequence[str]) -> Estimate:
        """The loss in full precision that the worst of some trajectories ends with."""
        ends = [self._points(name, LOSS, None)[-1].value for name in names]
        if not all(math.isfinite(end.value) for end in ends):
            raise NotMeasured(f"one of {', '.join(names)} ends with no finite loss")
        return max(ends, key=lambda each: each.value)

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

    def _quantizer(self, term: Term) -> str | None:
        return term.draws[min(self._draw, len(term.draws) - 1)] if term.draws else None

    def _points(self, name: str, metric: str, quantizer: str | None) -> list[Point]:
        found = self._readings.points(name, metric, quantizer, self._seed)
        if not found:
            where = f" under {quantizer}" if quantizer else ""
            raise NotMeasured(f"{metric} of {name}{where} is not measured")
        return found

    def _taken(self, term: Term) -> Estimate:
        own = self._read(term)
        if term.take == "mean":
            return mean(own)
        return self._extreme(term, own)

    def _read(self, term: Term) -> list[Estimate]:
        """The values that a term is the mean of, or the most extreme."""
        found = list[Estimate]()
        for name in term.of:
            if term.at.first is not None and term.metric in TRAINING:
                source = f"records of {name} at seed {self._seed}, {term.at}"
                found.append(_window(self._stretch(name, term), source))
            elif term.at.first is not None:
                found += [point.value for point in self._stretch(name, term)]
            else:
                found.append(self._at(name, term))
        return found

    def _extreme(self, term: Term, own: Sequence[Estimate]) -> Estimate:
        """The value here of what is most extreme in the mean over all seeds and draws, so that what
        is taken is the same for all of them; with the error of having taken it."""
        seeds = dict[int, list[list[Estimate]]]()
        for seed, draw in self._every:
            other = Terms(self._readings, seed, draw, self._every, self._between_sets)
            seeds.setdefault(seed, []).append(other._read(term))
        if any(len(found) != len(own) for each in seeds.values() for found in each):
            raise NotMeasured("seeds are not measured at as many points")
        values_of = [[[e.value for e in found] for found in each] for each in seeds.values()]
        by_seed = np.array([np.mean(each, axis=0) for each in values_of])
        values = by_seed.mean(axis=0)
        place = int(values.argmax() if term.take == "largest" else values.argmin())
        spread = float(by_seed[:, place].std(ddof=1)) if len(by_seed) > 1 else 0.0
        source = f"having taken the {term.take} of {term.metric}, {term.of}, {term.at}"
        return own[place] + selection(len(own), max(own[place].stderr, spread), source)

    def _at(self, name: str, term: Term) -> Estimate:
        quantizer, at = self._quantizer(term), term.at
        if at.loss_of:
            return self._at_loss(name, term)
        points = self._measured(name, term)
        if at.rise is not None:
            return self._at_rise(name, points, at.rise)
        if not at.tokens_of and at.share == 1:
            return points[-1].value
        if not at.tokens_of and at.share == 0:
            return points[0].value
        points = [point for point in points if math.isfinite(point.tokens)]
        level = self._tokens(term, points, name)
        tokens = [exact(point.tokens) for point in points]
        source = f"{term.metric} of {name} under {quantizer} between points, by tokens"
        values = [point.value for point in points]
        found = at_level(tokens, values, exact(level), f"{source}, seed {self._seed}")
        if found is None:
            raise NotMeasured(f"{name} is not measured at {level:,.0f} tokens")
        return found

    def _tokens(self, term: Term, points: Sequence[Point], name: str) -> float:
        if not points:
            raise NotMeasured(f"{name} has no checkpoints with a number of tokens")
        first, last = points[0].tokens, points[-1].tokens
        if not term.at.tokens_of:
            return first + term.at.share * (last - first)
        level = self._shortest(term)
        return last if math.isclose(level, last, rel_tol=ROUNDING) else level

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
        _, before, after = max(rises)
        found = {each.id: each.value for each in points}
        wanted = before if side == "before" else after
        if wanted not in found:
            raise NotMeasured(f"{name} is not measured at its checkpoint {wanted}")
        return found[wanted]

    def _at_loss(self, name: str, term: Term) -> Estimate:
        """Read where the loss in full precision was the level for the last time, along the run and
        its trunk before."""
        level = self._loss_level(term.at.loss_of)
        quantizer = self._quantizer(term)
        losses = self._lineage(name, replace(term, metric=LOSS, draws=()))
        points = {point.id: point for point in self._lineage(name, term)}
        both = [(each.value, points[each.id].value) for each in losses if each.id in points]
        source = f"{term.metric} of {name} under {quantizer} between points, by loss"
        xs, ys = [x for x, _ in both], [y for _, y in both]
        found = at_level(xs, ys, level, f"{source}, seed {self._seed}")
        if found is None:
            raise NotMeasured(f"{name} never has a loss of {level.value:.4g}")
        return found

    def _lineage(self, name: str, term: Term) -> list[Point]:
        """The points of a run, after those of its trunk before it branches off."""
        own = self._measured(name, term)
        trunk = self._readings.trunk(name)
        if trunk is None:
            return own
        if not self._readings.points(trunk.trunk, term.metric, self._quantizer(term), self._seed):
            return own
        before = self._measured(trunk.trunk, term)
        first = min((point.step for point in own if point.step is not None), default=trunk.at)
        return [each for each in before if each.step is not None and each.step < first] + own

    def _stretch(self, name: str, term: Term) -> list[Point]:
        """The points of a trajectory from one share of its tokens to another."""
        points = self._measured(name, term)
        start, end = points[0].tokens, points[-1].tokens
        if term.at.tokens_of:
            start, end = 0.0, self._shortest(term)
        low, high = (start + share * (end - start) for share in (term.at.first or 0, term.at.share))
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
            trunk = self._readings.trunk(name)
            group = trunk.trunk if trunk is not None else name
            against = {
                each.id: each
                for each in self._points(name, other, quantizer if other in QUANTIZED else None)
            }
            points = self._points(name, term.metric, quantizer)
            for point in points if term.at.first is not None else points[-1:]:
                # Where a run branches off, it has the weights of its trunk.
                forks = trunk is not None and point.step == trunk.at
                key = (group if forks else name, point.id)
                if point.id in against and key not in seen:
                    seen.add(key)
                    pair = (point.value.value, against[point.id].value.value)
                    groups.setdefault(group, []).append(pair)
        source = f"{term.metric} and {other} of {', '.join(term.of)} under {quantizer}"
        points_of = [np.array(points) for points in groups.values()]
        if not all(np.isfinite(points).all() for points in points_of):
            raise NotMeasured(f"{term.metric} or {other} is not finite somewhere")
        found = correlation(points_of, source)
        if not math.isfinite(found.value):
            raise NotMeasured(f"there are too few trajectories with {term.metric} and {other}")
        return found


def _window(points: Sequence[Point], source: str) -> Estimate:
    """The mean of the records of a stretch, and its standard error, which counts that neighbours
    are alike, by their correlation."""
    values = np.array([point.value.value for point in points])
    n = len(values)
    if n < 3:
        raise NotMeasured("too few records of a training curve lie there")
    rest = values - values.mean()
    power = float((rest**2).sum())
    alike = float((rest[1:] * rest[:-1]).sum()) / power if power else 0.0
    alike = min(max(alike, 0.0), 1 - 1 / n)
    variance = power / (n - 1) / n * (1 + alike) / (1 - alike)
    return independent(float(values.mean()), math.sqrt(variance), source)
