"""A rate that falls with the root of time."""

import math
from collections.abc import Callable
from typing import Literal

from ptq_dynamics.base.fields import Share
from ptq_dynamics.train.schedules import Schedule, Scheduled, Span


class InverseSqrt(Schedule):
    """The peak rate times the root of `warmup` / step."""

    kind: Literal["inverse-sqrt"]

    def after_warmup(self, step: int) -> float:
        """Return the rate, which never reaches zero."""
        return self.peak * math.sqrt(self.warmup / step)

    def decay(self, last: int) -> range:
        """Return the steps from the end of the warmup on."""
        return range(self.warmup, last)


class InverseSqrtRun(Scheduled):
    """The inverse root of time after the warmup."""

    kind: Literal["inverse-sqrt"]

    def in_steps(self, run: Span, steps: Callable[[Share], int]) -> InverseSqrt:
        """Return the schedule of a run."""
        return InverseSqrt(kind=self.kind, peak=run.peak, warmup=run.warmup)
