"""Uniform means of checkpoints that follow one another in a trajectory."""

from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Share
from ptq_dynamics.train.averages import OfOne
from ptq_dynamics.train.settings import Mean, Member
from ptq_dynamics.train.timeline import Timeline


class Last(OfOne):
    """Uniform means of the last `last` measured checkpoints, at any distance. If the authors of a
    public model averaged some checkpoints, only these count."""

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
    """LAWA (section 4): uniform means of the last `window` checkpoints, `every` share apart."""

    every: Share
    window: Annotated[int, Field(ge=2)]

    def means(self, timeline: Timeline) -> list[Mean]:
        """Return a mean for each measured checkpoint that has a whole window behind it."""
        found, every, known = list[Mean](), timeline.steps(self.every), {*self.ids(timeline)}
        for name, end in timeline.measured(self.trajectory):
            steps = [(end or 0) - every * back for back in reversed(range(self.window))]
            if known.issuperset(steps):
                found.append(self.mean(name, dict.fromkeys(steps, 1.0), timeline))
        return found
