"""Means of checkpoints along one trajectory."""

from math import exp
from typing import Annotated

from pydantic import Field

from ptq_dynamics.base import needs
from ptq_dynamics.base.fields import Name, Once, Share
from ptq_dynamics.trajectories.averages import Mean, Member, OfOne, SourcePoints, Steps, mean_of

# A checkpoint this many memories old weighs 2e-9 of the last one, below float32's resolution.
FORGOTTEN = 20


class Last(OfOne):
    """Uniform means of the last `last` measured checkpoints, or of those that authors averaged, but
    for means with the ids `without`."""

    last: Annotated[int, Field(ge=2)]
    without: Annotated[tuple[Name, ...], Once] = ()

    def along(self, source: SourcePoints, steps: Steps) -> list[Mean]:
        """Return a mean for each checkpoint that has enough checkpoints before it."""
        taken = source.averaged or [point.id for point in source.measured]
        points = [point for point in source.measured if point.id in taken]
        windows = (points[end - self.last : end] for end in range(self.last, len(points) + 1))
        return [
            Mean(*window[-1], tuple(Member(needs.TRAJECTORY, point.id, 1.0) for point in window))
            for window in windows
            if window[-1].id not in self.without
        ]


class Lawa(OfOne):
    """LAWA (section 4): uniform means of the last `window` checkpoints, `every` share apart, at
    the measured steps or `at` one step."""

    every: Share
    window: Annotated[int, Field(ge=2)]
    at: Share | None = None

    def along(self, source: SourcePoints, steps: Steps) -> list[Mean]:
        """Return a mean for each of these steps that has a whole window behind it."""
        means, every, ids = list[Mean](), steps(self.every), source.ids
        measured = [point.step or 0 for point in source.measured]
        for end in [steps(self.at)] if self.at else measured:
            window = [end - every * back for back in reversed(range(self.window))]
            if ids.keys() >= {*window}:
                means.append(mean_of(ids, ids[end], dict.fromkeys(window, 1.0)))
        return means


class Tails(OfOne):
    """Several means at the end of one trajectory."""

    def known(self, source: SourcePoints) -> list[int]:
        """Return the steps of checkpoints up to the last measured one."""
        end = source.measured[-1].step or 0
        return sorted(step for step in source.ids if step <= end)


class Exponential(Tails):
    """Means with weights exp(−age / memory) of checkpoints `every` share apart."""

    every: Share
    memories: Annotated[tuple[Share, ...], Field(min_length=1), Once]

    def along(self, source: SourcePoints, steps: Steps) -> list[Mean]:
        """Return a mean for each memory."""
        known, every = self.known(source), steps(self.every)
        taken = range(known[-1], known[0] - 1, -every) if known else range(0)
        if len(taken) < 2 or not {*known}.issuperset(taken):
            return []
        means, end = list[Mean](), taken[0]
        for memory in dict.fromkeys(map(steps, self.memories)):
            near = [step for step in taken if end - step <= FORGOTTEN * memory]
            # The last digit of exp may differ between machines.
            weights = {step: float(f"{exp((step - end) / memory):.12g}") for step in near}
            means.append(mean_of(source.ids, f"memory-{memory}", weights))
        return means


class Intervals(Tails):
    """Uniform means of the last `window` checkpoints, for each of the `intervals` between them."""

    intervals: Annotated[tuple[Share, ...], Field(min_length=1), Once]
    window: Annotated[int, Field(ge=2)]

    def along(self, source: SourcePoints, steps: Steps) -> list[Mean]:
        """Return a mean for each interval."""
        means, known = list[Mean](), self.known(source)
        for every in dict.fromkeys(map(steps, self.intervals)):
            tail = [step - every * back for step in known[-1:] for back in range(self.window)]
            if tail and {*tail} <= {*known}:
                weights = dict.fromkeys(tail, 1.0)
                means.append(mean_of(source.ids, f"every-{every}", weights))
        return means
