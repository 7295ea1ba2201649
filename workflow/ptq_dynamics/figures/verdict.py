"""What quantization errors of a run tell, in sentences that are no surer than the measurements.

The error of a checkpoint is its expected value plus scatter, independent between checkpoints. The
*level* is the expected error of the last `BEFORE` checkpoints at the peak rate, before the first
decay. The *end* is that of the last checkpoint. Without both, the *rise* is that of the straight
line through all checkpoints in their order. Intervals of 95 % are Student's t, with the scatter of
neighbours. Ratios have Fieller's intervals (1954). An end is higher if the interval of its
difference is above zero. "From step S on" goes backwards from the end, until a checkpoint is not
higher. Tests in a fixed order need no correction for their number. The ends of two runs differ if
the interval of their difference excludes zero."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import hypot, inf, isfinite, isqrt

import numpy as np

BEFORE = 3  # checkpoints at the peak rate whose mean is the level
COVERS = 0.95  # probability of intervals
PARTS = 3  # of a run, at most, with a scatter of their own; fewer if each has few differences
FEW = 4  # differences in a part where the end alone counts


@dataclass(frozen=True)
class Errors:
    """Errors of a run [checkpoints] in the order of steps, after the warmup, in per cent. `noise`
    has their standard errors over blocks of text. `is_of_end` takes the scatter in short parts."""

    phases: np.ndarray
    steps: np.ndarray
    values: np.ndarray
    noise: np.ndarray
    is_of_end: bool = False

    @cached_property
    def fall(self) -> int:
        """The place of the first checkpoint after those at the peak rate; 0 if there are none."""
        return int(np.flatnonzero(self.phases == "stable").max(initial=-1)) + 1

    @cached_property
    def _pairs(self) -> np.ndarray:
        """Differences of neighbours, but not across the first decay."""
        parts = self.values[: self.fall], self.values[self.fall :]
        return np.concatenate([np.diff(part) for part in parts])

    @property
    def of_end(self) -> "Errors":
        """The same, with the scatter of the end. If the end alone follows the first decay, the
        difference across the decay counts as well."""
        alone = self.fall == len(self.values) - 1
        phases = np.full(len(self.values), "decay") if alone else self.phases
        return replace(self, phases=phases, is_of_end=True)

    @cached_property
    def _of_blocks(self) -> float:
        return float((self.noise**2).mean() ** 0.5)

    @cached_property
    def scatter(self) -> float:
        """The standard deviation of a checkpoint's error about its expected value: of the part of
        the run where neighbours differ most, and no less than the error over blocks of text."""
        pairs = self._pairs
        few = len(pairs) // FEW if self.is_of_end else 1
        parts = np.array_split(pairs, max(few, min(PARTS, isqrt(len(pairs))), 1))
        largest = max(float((part**2).mean() / 2) for part in parts) if len(pairs) else inf
        return max(largest**0.5, self._of_blocks)

    def half(self, variance: float) -> float:
        """Return half the interval of a number whose variance is a multiple of the scatter's."""
        from scipy.special import stdtrit

        if not (count := len(self._pairs)):
            return inf
        # Neighbouring differences share a checkpoint (von Neumann 1941).
        freedom = 2 * count**2 / (3 * count - 1)
        return float(self.scatter * variance**0.5 * stdtrit(freedom, (1 + COVERS) / 2))

    def verdict(self, called: str) -> str:
        """Return sentences, without the last full stop, on errors under the quantizer `called`."""
        text = f"{called}: the error is"
        if len(self.values) < 2:
            return f"{text} {self.values[-1]:.3g} ± {self.noise[-1]:.1g} % (over blocks of text)"
        after = {*self.phases[self.fall :]}
        if self.fall and after - {"checkpoint"}:
            return f"{text} {self._of_decay()}"
        why = "The rate has not decayed, so there is no decay to judge"
        if after:
            why = "The rate is not known to have decayed, so no decay can be judged"
        if not self.fall:
            why = "No checkpoint is known to be at the peak rate, so no decay can be judged"
        return f"{text} {self.values[-1]:.3g} % at the end. {why}. {self._of_trend()}"

    def _of_decay(self) -> str:
        peak, last = self.values[self.phases == "stable"][-BEFORE:], float(self.values[-1])
        level, variance = float(peak.mean()), 1 + 1 / len(peak)
        half, gap = self.half(variance), last - level
        when = f"over the last {len(peak)}" if len(peak) > 1 else "in the one checkpoint"
        text = f"{level:.3g} % {when} at the peak rate"
        text += " before the first decay" if "restart" in self.phases else ""
        text += f", and {last:.3g} % at the end: {difference(gap, half)}"
        # A level within its noise of zero can divide nothing.
        if level > (uncertain := self.half(1 / len(peak))):
            of_end, rest = self.half(1), level**2 - uncertain**2
            wide = (hypot(last * uncertain, level * of_end) ** 2 - (of_end * uncertain) ** 2) ** 0.5
            low, high = ((last * level + sign * wide) / rest for sign in (-1, 1))
            text += f", {last / level:.2f} times as large [{low:.2f}, {high:.2f}]"
        if gap > half:
            is_not = np.flatnonzero(self.values - level <= half).max()
            first = self.steps[max(self.fall, is_not + 1)]
            return f"{text}. From step {first:,} on it is higher"
        return f"{text}. " + (
            "It is lower at the end"
            if gap < -half
            else f"Whether the end is higher cannot be told; {self.needed(gap, variance)}"
        )

    def _of_trend(self) -> str:
        count = len(self.values)
        places = np.linspace(-0.5, 0.5, count)
        weights = places / (places @ places)
        rise, variance = float(weights @ self.values), float(weights @ weights)
        half = self.half(variance)
        text = f"Along the line through {count} checkpoints it changes: {difference(rise, half)}. "
        if abs(rise) > half:
            return text + ("It rises" if rise > 0 else "It falls")
        return f"{text}Whether it rises cannot be told; {self.needed(rise, variance)}"

    def needed(self, gap: float, variance: float) -> str:
        """Return what would tell whether a difference is more than scatter."""
        if self._of_blocks >= self.scatter:
            return "more tokens (--tokens) may tell"
        if not len(self._pairs) or abs(gap) > 2 * self.scatter * variance**0.5:
            return "more checkpoints, at the peak rate and after it, may tell"
        return f"single checkpoints scatter by {self.scatter:.1g} points, and more runs may tell"


def apart(run: Errors, name: str, first: str, other: Errors) -> str:
    """Return a sentence, without the full stop, on the ends of a run and of the first one, under
    one quantizer. Each run has its own scatter, and the interval is that of Banerjee (1960)."""
    run, other = run.of_end, other.of_end
    gap, half = float(run.values[-1] - other.values[-1]), hypot(run.half(1), other.half(1))
    text = f"At the end its error minus that of {first} is {difference(gap, half)}: "
    if abs(gap) > half:
        return f"{text}{name} has the {'larger' if gap > 0 else 'smaller'} error"
    widest = max(run, other, key=lambda errors: errors.half(1))
    return f"{text}whether they differ cannot be told; {widest.needed(gap, 2)}"


def difference(gap: float, half: float, unit: str = " points", digits: str = ".3g") -> str:
    """Return a difference and its interval as text."""
    ends = f"{gap - half:{digits}}, {gap + half:{digits}}" if isfinite(half) else "unknown"
    return f"{gap:+{digits}}{unit} [{ends}]"
