"""From terms of inequalities to estimates, at one seed and one draw of calibration sets."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from ptq_dynamics.claims.estimates import (
    Estimate,
    at_level,
    correlation,
    independent,
    mean,
    selection,
)
from ptq_dynamics.claims.readings import PointRead, Readings
from ptq_dynamics.claims.settings import Inequality, Place, Term
from ptq_dynamics.measure.names import LOSS, QUANTIZED
from ptq_dynamics.train.settings import TRAINING

# By metric and quantizer: one standard deviation between calibration sets (see `deviations`).
Deviations = Mapping[tuple[str, str], float]
# Beyond the last point by less than this share, a curve is read at its end.
ROUNDING = 1e-9


class NotMeasured(Exception):
    """Why a term has no value, in words."""


def deviations(inequalities: Sequence[Inequality], readings: Readings) -> Deviations:
    """The standard deviation between the calibration sets of a quantizer, wherever some inequality
    reads it with several: pooled over the last checkpoints of its trajectories at all seeds. Who
    has one set alone takes this as the error of that."""
    seeds = sorted({seed for one in inequalities for seed in one.seeds})
    several = (one for one in inequalities if len(one.draws) > 1)
    every = ((name, o.metric, o.draws) for o in several for term in o.terms for name in term.of)
    variances = dict[tuple[str, str], list[float]]()
    for name, metric, draws in dict.fromkeys(every):
        for seed in seeds:
            ends = [readings.points(name, metric, draw, seed)[-1:] for draw in draws]
            values = [point.value.value for points in ends for point in points]
            # A run that diverged under one of them says nothing of the others.
            if len(values) == len(draws) and np.isfinite(values).all():
                variance = float(np.var(values, ddof=1))
                variances.setdefault((metric, draws[0]), []).append(variance)
    return {key: math.sqrt(float(np.mean(found))) for key, found in variances.items()}


@dataclass(frozen=True)
class Terms:
    """Values of terms of a metric at one seed and one of the draws of a quantizer, by number (no
    draws: in full precision); `every`: all seeds and draws, by which the largest and the smallest
    are told."""

    readings: Readings
    metric: str
    draws: tuple[str, ...]
    seed: int
    draw: int
    between: Deviations
    every: Iterable[tuple[int, int]] = ()

    @property
    def quantizer(self) -> str | None:
        """The draw by its name."""
        return self.draws[self.draw] if self.draws else None

    def value(self, term: Term | float) -> Estimate:
        """The value of a term; raises `NotMeasured` where a measurement is missing."""
        if not isinstance(term, Term):
            return Estimate(float(term))
        found = self._correlation(term, term.against) if term.against else self._taken(term)
        if term.less is not None:
            found = found - self.value(term.less)
        return found if term.per is None else found / self.value(term.per)

    def _points(self, name: str, metric: str, quantizer: str | None) -> list[PointRead]:
        found = self.readings.points(name, metric, quantizer, self.seed)
        if not found:
            where = f" under {quantizer}" if quantizer else ""
            raise NotMeasured(f"{metric} of {name}{where} is not measured")
        return found

    def _measured(self, name: str) -> list[PointRead]:
        """The points of the metric, where it has one calibration set alone with the error of that,
        as far as it is known."""
        points = self._points(name, self.metric, self.quantizer)
        error = self.between.get((self.metric, self.quantizer or ""), 0.0)
        if len(self.draws) != 1 or not error:
            return points
        source = f"calibration of {name} under {self.quantizer} at seed {self.seed}, checkpoint "
        return [replace(p, value=p.value + independent(0.0, error, source + p.id)) for p in points]

    def _read(self, term: Term) -> list[Estimate]:
        """The values that a term is the mean of, or the most extreme."""
        if term.at.start is None:
            return [self._at(name, term.at) for name in term.of]
        found = list[Estimate]()
        for name in term.of:
            values = [point.value for point in self._stretch(name, term.at)]
            source = f"records of {name} at seed {self.seed}, {term.at}"
            found += [_window(values, source)] if self.metric in TRAINING else values
        return found

    def _taken(self, term: Term) -> Estimate:
        """The mean; or the value here of what is most extreme in the mean over all seeds and draws,
        so that what is taken is the same for all of them, with the error of having taken it."""
        own = self._read(term)
        if term.take == "mean":
            return mean(own)
        others = (replace(self, seed=seed, draw=draw)._read(term) for seed, draw in self.every)
        values = [[each.value for each in read] for read in others]
        if {*map(len, values)} != {len(own)}:
            raise NotMeasured("seeds are not measured at as many points")
        seeds = len({seed for seed, _ in self.every})
        by_seed = np.reshape(values, (seeds, -1, len(own))).mean(axis=1)
        together = by_seed.mean(axis=0)
        place = int(together.argmax() if term.take == "largest" else together.argmin())
        spread = float(by_seed[:, place].std(ddof=1)) if seeds > 1 else 0.0
        source = f"having taken the {term.take} of {self.metric}, {term.of}, {term.at}"
        return own[place] + selection(len(own), max(own[place].stderr, spread), source)

    def _at(self, name: str, at: Place) -> Estimate:
        if at.loss_of:
            return self._at_loss(name, at)
        points = self._measured(name)
        if at.rise is not None:
            return self._at_rise(name, points, at.rise)
        if at in (Place(), Place(end=0)):
            return points[-1 if at.end else 0].value
        points = [point for point in points if math.isfinite(point.tokens)]
        if not points:
            raise NotMeasured(f"{name} has no checkpoints with a number of tokens")
        first, last = points[0].tokens, points[-1].tokens
        level = first + at.end * (last - first)
        if at.tokens_of:
            level = self._shortest(at)
            level = last if math.isclose(level, last, rel_tol=ROUNDING) else level
        both = [(Estimate(point.tokens), point.value) for point in points]
        missing = f"is not measured at {level:,.0f} tokens"
        return self._between(name, both, Estimate(level), "tokens", missing)

    def _between(
        self,
        name: str,
        both: Sequence[tuple[Estimate, Estimate]],
        level: Estimate,
        by: str,
        missing: str,
    ) -> Estimate:
        where = f"{self.metric} of {name} under {self.quantizer} between points, by {by}"
        xs, ys = [x for x, _ in both], [y for _, y in both]
        found = at_level(xs, ys, level, f"{where}, seed {self.seed}")
        if found is None:
            raise NotMeasured(f"{name} {missing}")
        return found

    def _shortest(self, at: Place) -> float:
        """The tokens at which the first of the trajectories ends at whose tokens it is read."""
        ends = (self._points(each, self.metric, self.quantizer)[-1] for each in at.tokens_of)
        return min(end.tokens for end in ends)

    def _at_rise(self, name: str, points: Sequence[PointRead], side: str) -> Estimate:
        """Read at the checkpoint before or after the greatest rise of the loss in full precision.
        The loss says where, so that no value is read because it is large."""
        losses = [p for p in self._points(name, LOSS, None) if math.isfinite(p.value.value)]
        rises = [(b.value.value - a.value.value, a.id, b.id) for a, b in pairwise(losses)]
        if not rises or max(rises)[0] <= 0:
            raise NotMeasured(f"the loss of {name} never rises")
        wanted = max(rises)[1 if side == "before" else 2]
        found = {each.id: each.value for each in points}
        if wanted not in found:
            raise NotMeasured(f"{name} is not measured at its checkpoint {wanted}")
        return found[wanted]

    def _at_loss(self, name: str, at: Place) -> Estimate:
        """Read where the loss in full precision was that with which the worst of some trajectories
        ends, for the last time, along the run and its trunk before."""
        ends = [self._points(each, LOSS, None)[-1].value for each in at.loss_of]
        if not all(math.isfinite(end.value) for end in ends):
            raise NotMeasured(f"one of {', '.join(at.loss_of)} ends with no finite loss")
        level = max(ends, key=lambda each: each.value)
        losses = replace(self, metric=LOSS, draws=())._lineage(name)
        points = {point.id: point.value for point in self._lineage(name)}
        both = [(each.value, points[each.id]) for each in losses if each.id in points]
        missing = f"never has a loss of {level.value:.4g}"
        return self._between(name, both, level, "loss", missing)

    def _lineage(self, name: str) -> list[PointRead]:
        """The points of a run, after those of its trunk before it branches off."""
        own, run = self._measured(name), self.readings.branch(name)
        if run is None or run.trunk is None:
            return own
        if not self.readings.points(run.trunk, self.metric, self.quantizer, self.seed):
            return own
        before = self._measured(run.trunk)
        first = min((point.step for point in own if point.step is not None), default=run.at or 0)
        return [each for each in before if each.step is not None and each.step < first] + own

    def _stretch(self, name: str, at: Place) -> list[PointRead]:
        """The points of a trajectory from one share of its tokens to another."""
        points = self._measured(name)
        start, end = points[0].tokens, points[-1].tokens
        if at.tokens_of:
            start, end = 0.0, self._shortest(at)
        low, high = (start + share * (end - start) for share in (at.start or 0, at.end))
        slack = ROUNDING * abs(end)
        found = [each for each in points if low - slack <= each.tokens <= high + slack]
        if not found:
            raise NotMeasured(f"{name} is not measured there")
        return found

    def _correlation(self, term: Term, other: str) -> Estimate:
        """Spearman's ρ of two metrics; runs that branch off one trunk, and it, are one group."""
        rows = list[tuple[str, str, str, float, float]]()
        for name in term.of:
            run = self.readings.branch(name)
            group = name if run is None else str(run.trunk)
            under = self.quantizer if other in QUANTIZED else None
            against = {each.id: each.value.value for each in self._points(name, other, under)}
            points = self._points(name, self.metric, self.quantizer)
            for point in points if term.at.start is not None else points[-1:]:
                # Where a run branches off, it has the weights of its trunk.
                forks = run is not None and point.step == run.at
                if point.id in against:
                    owner = group if forks else name
                    rows.append((group, owner, point.id, point.value.value, against[point.id]))
        table = pd.DataFrame(rows, columns=["group", "owner", "id", "one", "other"])
        table = table.drop_duplicates(["owner", "id"])
        if not np.isfinite(table[["one", "other"]].to_numpy(np.float64)).all():
            raise NotMeasured(f"{self.metric} or {other} is not finite somewhere")
        groups = [part[["one", "other"]] for _, part in table.groupby("group", sort=False)]
        source = f"{self.metric} and {other} of {', '.join(term.of)} under {self.quantizer}"
        found = correlation([part.to_numpy() for part in groups], source)
        if not math.isfinite(found.value):
            raise NotMeasured(f"there are too few trajectories with {self.metric} and {other}")
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
