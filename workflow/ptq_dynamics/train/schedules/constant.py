"""The peak rate after the warmup."""

from collections.abc import Callable
from typing import Literal

from ptq_dynamics.base.fields import Share
from ptq_dynamics.train.schedules import Schedule, Scheduled, Span


class Constant(Schedule):
    """The peak rate after the warmup."""

    kind: Literal["constant"]

    def after_warmup(self, step: int) -> float:
        """Return the peak rate."""
        return self.peak

    def decay(self, last: int) -> range:
        """Return no step."""
        return range(0)

    def phase(self, step: int) -> str:
        """Return the phase: warmup or stable."""
        return "warmup" if step < self.warmup else "stable"


class ConstantRun(Scheduled):
    """A constant rate after the warmup."""

    kind: Literal["constant"]

    def in_steps(self, run: Span, steps: Callable[[Share], int]) -> Constant:
        """Return the schedule of a run."""
        return Constant(kind=self.kind, peak=run.peak, warmup=run.warmup)
