"""Half a cosine, from the end of the warmup on."""

import math
from collections.abc import Callable
from typing import Literal

from ptq_dynamics.base.fields import Share
from ptq_dynamics.train.schedules import Floor, Schedule, Scheduled, Span


class Cosine(Schedule):
    """Half a cosine from `peak` to `floor` at step `stop`, which may lie beyond the run."""

    kind: Literal["cosine"]
    floor: float
    stop: int

    def after_warmup(self, step: int) -> float:
        """Return the rate along half a cosine."""
        return half_cosine(step - self.warmup, self.stop - self.warmup, self.peak, self.floor)

    def decay(self, last: int) -> range:
        """Return the steps from the end of the warmup on."""
        return range(self.warmup, last)


class CosineRun(Scheduled):
    """Half a cosine to the share `floor` of the peak rate at the end of the run, or at a `horizon`
    beyond it."""

    kind: Literal["cosine"]
    horizon: Share | None = None
    floor: Floor = 0.0

    def check(self, length: Share) -> None:
        """Raise `ValueError` if the horizon lies within the run."""
        if self.horizon is not None and self.horizon < length:
            raise ValueError(
                f"schedule.horizon is {self.horizon}: must be at least length {length}"
            )

    def in_steps(self, run: Span, steps: Callable[[Share], int]) -> Cosine:
        """Return the schedule of a run."""
        stop = steps(self.horizon) if self.horizon else run.last
        floor = self.floor * run.peak
        return Cosine(kind=self.kind, peak=run.peak, warmup=run.warmup, floor=floor, stop=stop)


def half_cosine(step: int, length: int, peak: float, floor: float) -> float:
    """Return the value at a step of half a cosine from `peak` to `floor` over `length` steps."""
    done = min(step / max(length, 1), 1.0)
    return floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2
