"""Uniform means of the last measured checkpoints, whatever their steps."""

from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.train.averages import OfOne
from ptq_dynamics.train.settings import Mean, Member
from ptq_dynamics.train.timeline import Point, Timeline


class Last(OfOne):
    """Uniform mean of the last `last` measured checkpoints of one trajectory, whatever lies between
    them, or of those that its authors averaged, where they are known; one wherever that has so
    many."""

    last: Annotated[int, Field(ge=2)]

    def _points(self, timeline: Timeline) -> list[Point]:
        measured = timeline.measured(self.trajectory)
        return timeline.trajectory(self.trajectory).averaged_of(measured)

    def means(self, timeline: Timeline) -> list[Mean]:
        """One a point of the source that has enough before it."""
        points = self._points(timeline)
        windows = (points[end - self.last : end] for end in range(self.last, len(points) + 1))
        return [
            Mean(*window[-1], tuple(Member("trajectory", point.id, 1.0) for point in window))
            for window in windows
        ]

    def check(self, place: str, timeline: Timeline) -> None:
        """There is at least one average."""
        count, measured = len(self._points(timeline)), len(timeline.measured(self.trajectory))
        # A source without any is answered itself.
        if 0 < count < self.last:
            named = ", of which it names some as averaged" if count < measured else ""
            raise Problem(
                f"{place}.last is {self.last}, but {self.trajectory} has {count} measured "
                f"checkpoints{named}; lower it, or measure more of them"
            )
