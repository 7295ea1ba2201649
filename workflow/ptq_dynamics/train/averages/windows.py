"""Means of checkpoints along one trajectory."""

from math import exp
from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Once, Share
from ptq_dynamics.train.averages import OfOne
from ptq_dynamics.train.settings import Mean, Member
from ptq_dynamics.train.timeline import Timeline

# A checkpoint this many memories old weighs 2e-9 of the last one, below float32's resolution.
FORGOTTEN = 20


class Last(OfOne):
    """Uniform means of the last `last` measured checkpoints, or of those that authors averaged."""

    last: Annotated[int, Field(ge=2)]

    def means(self, timeline: Timeline) -> list[Mean]:
        """Return a mean for each checkpoint that has enough checkpoints before it."""
        measured = timeline.measured(self.trajectory)
        averaged = getattr(timeline.trajectories[self.trajectory], "averaged", ())
        points = [point for point in measured if not averaged or point.id in averaged]
        windows = (points[end - self.last : end] for end in range(self.last, len(points) + 1))
        return [
            Mean(*window[-1], tuple(Member("trajectory", point.id, 1.0) for point in window))
            for window in windows
        ]


class Lawa(OfOne):
    """LAWA (section 4): uniform means of the last `window` checkpoints, `every` share apart, at
    the measured steps or `at` one step."""

    every: Share
    window: Annotated[int, Field(ge=2)]
    at: Share | None = None

    def means(self, timeline: Timeline) -> list[Mean]:
        """Return a mean for each of these steps that has a whole window behind it."""
        found, every, ids = list[Mean](), timeline.steps(self.every), self.ids(timeline)
        measured = [point.step or 0 for point in timeline.measured(self.trajectory)]
        for end in [timeline.steps(self.at)] if self.at else measured:
            steps = [end - every * back for back in reversed(range(self.window))]
            if ids.keys() >= {*steps}:
                found.append(self.mean(ids[end], dict.fromkeys(steps, 1.0), timeline))
        return found


class Tails(OfOne):
    """Several means at the end of one trajectory."""

    def known(self, timeline: Timeline) -> list[int]:
        """Return the steps of checkpoints up to the last measured one."""
        end = timeline.measured(self.trajectory)[-1].step or 0
        return sorted(step for step in self.ids(timeline) if step <= end)

    def ages(self, timeline: Timeline) -> dict[str, float]:
        """Return the mean age of the members of each mean, in steps before the end."""
        steps, found = {name: step for step, name in self.ids(timeline).items()}, {}
        for mean in self.means(timeline):
            end, weight = mean.step or 0, sum(each.weight for each in mean.members)
            ages = (each.weight * (end - steps[each.checkpoint]) for each in mean.members)
            found[mean.id] = sum(ages) / weight
        return found


class Exponential(Tails):
    """Means with weights exp(−age / memory) of checkpoints `every` share apart."""

    every: Share
    memories: Annotated[tuple[Share, ...], Field(min_length=1), Once]

    def means(self, timeline: Timeline) -> list[Mean]:
        """Return a mean for each memory."""
        steps, every = self.known(timeline), timeline.steps(self.every)
        taken = range(steps[-1], steps[0] - 1, -every) if steps else range(0)
        if len(taken) < 2 or not {*steps}.issuperset(taken):
            return []
        found, end = [], taken[0]
        for memory in dict.fromkeys(map(timeline.steps, self.memories)):
            near = [step for step in taken if end - step <= FORGOTTEN * memory]
            # The last digit of exp may differ between machines.
            weights = {step: float(f"{exp((step - end) / memory):.12g}") for step in near}
            found.append(self.mean(f"memory-{memory}", weights, timeline))
        return found


class Intervals(Tails):
    """Uniform means of the last `window` checkpoints, for each of the `intervals` between them."""

    intervals: Annotated[tuple[Share, ...], Field(min_length=1), Once]
    window: Annotated[int, Field(ge=2)]

    def means(self, timeline: Timeline) -> list[Mean]:
        """Return a mean for each interval."""
        found, steps = [], self.known(timeline)
        for every in dict.fromkeys(map(timeline.steps, self.intervals)):
            tail = [step - every * back for step in steps[-1:] for back in range(self.window)]
            if tail and {*tail} <= {*steps}:
                found.append(self.mean(f"every-{every}", dict.fromkeys(tail, 1.0), timeline))
        return found
