"""Warmup, stable, decay (WSD): a constant rate, then a cooldown."""

import math
from collections.abc import Callable
from typing import Literal

from ptq_dynamics.base.fields import Share
from ptq_dynamics.train.schedules import Floor, Schedule, Scheduled, Shape, Span


class Wsd(Schedule):
    """Constant until step `start`, then a cooldown over `length` steps from `rate`, or else from
    the peak rate, to `floor`."""

    kind: Literal["wsd"]
    floor: float
    start: int
    length: int
    shape: Shape
    rate: float | None = None

    def after_warmup(self, step: int) -> float:
        """Return the rate, which a cooldown lowers linearly or by one minus the root of time."""
        peak = self.peak if self.rate is None else self.rate
        done = min(max((step - self.start) / self.length, 0.0), 1.0)
        remaining = 1 - done if self.shape == "linear" else 1 - math.sqrt(done)
        return self.floor + (peak - self.floor) * remaining

    def decay(self, last: int) -> range:
        """Return the steps of the cooldown."""
        return range(self.start, self.start + self.length)

    def phase(self, step: int) -> str:
        """Return the phase: warmup, stable or cooldown."""
        if step < self.warmup:
            return "warmup"
        return "cooldown" if step >= self.start else "stable"


class WsdRun(Scheduled):
    """A constant rate, then a `cooldown` to the share `floor` of the peak rate, at the end."""

    kind: Literal["wsd"]
    cooldown: Share
    shape: Shape = "linear"
    floor: Floor = 0.0

    def in_steps(self, run: Span, steps: Callable[[Share], int]) -> Wsd:
        """Return the schedule of a run."""
        length = steps(self.cooldown)
        return Wsd(
            kind=self.kind,
            peak=run.peak,
            warmup=run.warmup,
            floor=self.floor * run.peak,
            start=run.last - length,
            length=length,
            shape=self.shape,
        )
