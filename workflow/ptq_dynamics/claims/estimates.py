"""Estimates: values with all that they owe to each source of error, to first order.

What two estimates owe to the same source, as to the loss of the same validation block, goes up and
down together, so that errors of differences, ratios and interpolations come out paired (the delta
method).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from statistics import NormalDist

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """A value, and by source what each of its parts, all independent, adds to it at one standard
    deviation, float64 [parts]."""

    value: float
    errors: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def variance(self) -> float:
        """That of all sources together."""
        return float(sum((parts**2).sum() for parts in self.errors.values()))

    @property
    def stderr(self) -> float:
        """The standard error."""
        return math.sqrt(self.variance)

    def __add__(self, other: "Estimate | float") -> "Estimate":
        if not isinstance(other, Estimate):
            return Estimate(self.value + other, self.errors)
        return _combined(self.value + other.value, ((self, 1.0), (other, 1.0)))

    def __sub__(self, other: "Estimate | float") -> "Estimate":
        return self + other * -1.0

    def __mul__(self, other: "Estimate | float") -> "Estimate":
        if not isinstance(other, Estimate):
            return _combined(self.value * other, ((self, other),))
        return _combined(self.value * other.value, ((self, other.value), (other, self.value)))

    def __truediv__(self, other: "Estimate | float") -> "Estimate":
        if not isinstance(other, Estimate):
            return self * (1 / other if other else math.nan)
        if not other.value:
            return Estimate(math.nan)
        ratio = self.value / other.value
        return _combined(ratio, ((self, 1 / other.value), (other, -ratio / other.value)))


def exact(value: float) -> Estimate:
    """A value without error."""
    return Estimate(float(value))


def independent(value: float, stderr: float, source: str) -> Estimate:
    """A value whose standard error is its own."""
    return Estimate(float(value), {source: np.array([stderr])})


def of_parts(contributions: np.ndarray, source: str) -> Estimate:
    """The mean of contributions [n], as of validation blocks, which are what the source is made of;
    its standard error is that of a mean."""
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


def _combined(value: float, terms: Iterable[tuple[Estimate, float]]) -> Estimate:
    """A value that goes with some estimates at these rates."""
    found = dict[str, list[np.ndarray]]()
    for each, rate in terms:
        for source, parts in each.errors.items():
            found.setdefault(source, []).append(rate * parts)
    return Estimate(value, {source: reduce(np.add, parts) for source, parts in found.items()})
