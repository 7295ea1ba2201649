"""A curve read between its points, with the error of that."""

import math
from collections.abc import Sequence

from ptq_dynamics.claims.estimates import Estimate, independent


def at_level(
    xs: Sequence[Estimate], ys: Sequence[Estimate], level: Estimate, source: str
) -> Estimate | None:
    """The ordinate of a curve through points in their order, where its abscissa has a level, for
    the last time where it has it more than once; None where it never has.

    Between two points the curve is straight. How far it may bend away from the line there is an
    error of its own, under the name `source`: that of a parabola through one more neighbour, the
    more bent of both, but no more than these points differ. The abscissa's errors, and the level's,
    count with the slope.
    """
    for place in reversed(range(len(xs) - 1)):
        before, after = xs[place], xs[place + 1]
        low, high = sorted((before.value, after.value))
        if not low <= level.value <= high:
            continue
        if low == high:
            return ys[place + 1]
        share = (level - before) / (after - before)
        value = ys[place] + (ys[place + 1] - ys[place]) * share
        return value + independent(0.0, _bend(xs, ys, place, level.value), source)
    return None


def _bend(xs: Sequence[Estimate], ys: Sequence[Estimate], place: int, level: float) -> float:
    """How far a parabola through one more neighbour lies from the straight line at a level; where
    two abscissae almost coincide it says nothing, so no more than all of these ordinates differ. A
    neighbour where the run has diverged tells nothing."""
    near = [each.value for each in ys[max(place - 1, 0) : place + 3] if math.isfinite(each.value)]
    away = abs((level - xs[place].value) * (level - xs[place + 1].value))
    found = [0.0]
    for first in (place - 1, place):
        points = list(zip(xs, ys, strict=True))[max(first, 0) : first + 3]
        if first >= 0 and len(points) == 3:
            bent = abs(_curvature([(x.value, y.value) for x, y in points]))
            found += [bent] if math.isfinite(bent) else []
    return min(away * max(found), max(near) - min(near))


def _curvature(points: Sequence[tuple[float, float]]) -> float:
    """The second divided difference of three points; 0 where two have one abscissa."""
    (a, u), (b, v), (c, w) = points
    if len({a, b, c}) < 3:
        return 0.0
    return ((w - v) / (c - b) - (v - u) / (b - a)) / (c - a)
