"""Uniform means of the last measured checkpoints, whatever their steps."""

from typing import Annotated

from pydantic import Field

from ptq_dynamics.train.averages import OfOne
from ptq_dynamics.train.settings import Mean, Member
from ptq_dynamics.train.timeline import Timeline


class Last(OfOne):
    """Uniform mean of the last `last` measured checkpoints of one trajectory, whatever lies between
    them, or of those that its authors averaged, where they are known; one wherever that has so
    many."""

    last: Annotated[int, Field(ge=2)]

    def means(self, timeline: Timeline) -> list[Mean]:
        """One a point of the source that has enough before it."""
        measured = timeline.measured(self.trajectory)
        averaged = getattr(timeline.trajectories[self.trajectory], "averaged", ())
        points = [point for point in measured if not averaged or point.id in averaged]
        windows = (points[end - self.last : end] for end in range(self.last, len(points) + 1))
        return [
            Mean(*window[-1], tuple(Member("trajectory", point.id, 1.0) for point in window))
            for window in windows
        ]
