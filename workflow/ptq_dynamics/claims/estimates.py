"""Estimates: values with all that they owe to each source of error, to first order.

What two estimates owe to the same source, as to the loss of the same validation block, goes up and
down together, so that errors of differences, ratios and interpolations come out paired (the delta
method).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from ptq_dynamics.measure.correlation import spearman


@dataclass(frozen=True)
class Estimate:
    """A value, and by source what each of its parts, all independent, adds to it at one standard
    deviation, float64 [parts]; without sources it is exact."""

    value: float
    errors: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def stderr(self) -> float:
        """The standard error, of all sources together."""
        return math.sqrt(float(sum((parts**2).sum() for parts in self.errors.values())))

    def __add__(self, other: "Estimate") -> "Estimate":
        return _combined(self.value + other.value, ((self, 1.0), (other, 1.0)))

    def __sub__(self, other: "Estimate") -> "Estimate":
        return _combined(self.value - other.value, ((self, 1.0), (other, -1.0)))

    def __mul__(self, other: "Estimate") -> "Estimate":
        return _combined(self.value * other.value, ((self, other.value), (other, self.value)))

    def __truediv__(self, other: "Estimate") -> "Estimate":
        if not other.value:
            return Estimate(math.nan)
        ratio = self.value / other.value
        return _combined(ratio, ((self, 1 / other.value), (other, -ratio / other.value)))


def independent(value: float, stderr: float, source: str) -> Estimate:
    """A value whose standard error is its own."""
    return Estimate(float(value), {source: np.array([stderr])})


def of_parts(contributions: np.ndarray, source: str) -> Estimate:
    """The mean of contributions [n], as of validation blocks, which the source is made of."""
    values = contributions.astype(np.float64)
    n, value = len(values), float(values.mean())
    return Estimate(value, {source: (values - value) / math.sqrt(n * (n - 1))})


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of some estimates."""
    return _combined(
        math.fsum(each.value for each in estimates) / len(estimates),
        [(each, 1 / len(estimates)) for each in estimates],
    )


def selection(k: int, stderr: float, source: str) -> Estimate:
    """What to add to the most extreme of `k` values that have this standard error each: an error as
    large as it is expected to lie too far out, were all alike.

    That is the expected largest of as many normal deviates, by Blom's approximation (1958).
    """
    expected = NormalDist().inv_cdf((k - 0.375) / (k + 0.25)) if k > 1 else 0.0
    return independent(0.0, expected * stderr, source)


def over_draws(estimates: Sequence[Estimate], source: str) -> Estimate:
    """The mean over draws of what is random beside the other sources, as the calibration set, with
    the standard error that their spread gives it."""
    together = mean(estimates)
    if len(estimates) < 2:
        return together
    spread = float(np.std([each.value for each in estimates], ddof=1))
    return together + independent(0.0, spread / math.sqrt(len(estimates)), source)


def at_level(
    xs: Iterable[Estimate], ys: Iterable[Estimate], level: Estimate, source: str
) -> Estimate | None:
    """The ordinate of a curve through points in their order, where its abscissa has a level, for
    the last time where it has it more than once; None where it never has.

    Between two points the curve is straight. How far it may bend away from the line there is an
    error of its own, under the name `source`: that of a parabola through one more neighbour, the
    more bent of both, but no more than these points differ. The abscissa's errors, and the level's,
    count with the slope.
    """
    points = [*zip(xs, ys, strict=True)]
    for place, ((x, y), (after, following)) in reversed([*enumerate(pairwise(points))]):
        low, high = sorted((x.value, after.value))
        if not low <= level.value <= high:
            continue
        if low == high:
            return following
        value = y + (following - y) * ((level - x) / (after - x))
        bend = _bend([(x.value, y.value) for x, y in points], place, level.value)
        return value + independent(0.0, bend, source)
    return None


def _bend(points: Sequence[tuple[float, float]], place: int, level: float) -> float:
    # Where two abscissae almost coincide a parabola says nothing, so no more than all of these
    # ordinates differ. A neighbour where the run has diverged tells nothing.
    near = [y for _, y in points[max(place - 1, 0) : place + 3] if math.isfinite(y)]
    away = abs((level - points[place][0]) * (level - points[place + 1][0]))
    bends = [0.0]
    for first in (place - 1, place):
        three = points[max(first, 0) : first + 3]
        if first < 0 or len({x for x, _ in three}) < 3:
            continue
        # The second divided difference.
        (a, u), (b, v), (c, w) = three
        bend = abs(((w - v) / (c - b) - (v - u) / (b - a)) / (c - a))
        bends += [bend] if math.isfinite(bend) else []
    return min(away * max(bends), max(near) - min(near))


def of_records(records: Sequence[Estimate], source: str) -> Estimate:
    """The mean of neighbouring records of a curve, and its standard error, which counts that
    neighbours are alike, by their correlation."""
    values = np.array([each.value for each in records])
    n, rest = len(values), values - values.mean()
    power = float((rest**2).sum())
    alike = float((rest[1:] * rest[:-1]).sum()) / power if power else 0.0
    alike = min(max(alike, 0.0), 1 - 1 / n)
    variance = power / (n - 1) / n * (1 + alike) / (1 - alike)
    return independent(float(values.mean()), math.sqrt(variance), source)


def correlation(groups: Sequence[np.ndarray], source: str) -> Estimate:
    """Spearman's ρ of two columns over the points of all groups, [n, 2] each, and its standard
    error by leaving out one group at a time (the jackknife): points of one run are not independent
    of each other. NaN where a value is not finite, or of fewer than three groups."""
    if (n := len(groups)) < 3 or not np.isfinite(np.concatenate(groups)).all():
        return Estimate(math.nan)
    left = [[*groups[:place], *groups[place + 1 :]] for place in range(n)]
    without = np.array([spearman(*np.concatenate(each).T) for each in left])
    error = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    return independent(spearman(*np.concatenate(groups).T), error, source)


def _combined(value: float, terms: Iterable[tuple[Estimate, float]]) -> Estimate:
    found = dict[str, list[np.ndarray]]()
    for each, rate in terms:
        for source, parts in each.errors.items():
            found.setdefault(source, []).append(rate * parts)
    return Estimate(value, {source: reduce(np.add, parts) for source, parts in found.items()})
