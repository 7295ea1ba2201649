"""The line between the last checkpoints of two trajectories."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from ptq_dynamics.train.averages import OfSeveral
from ptq_dynamics.train.settings import Mean, Member
from ptq_dynamics.train.timeline import Point, Timeline
from ptq_dynamics.train.trajectory import step_id


class Interpolation(OfSeveral):
    """The line from the last checkpoint of one trajectory to that of another, in `points` equal
    steps, both ends counted."""

    phase: ClassVar = "interpolation"

    start: str
    end: str
    points: Annotated[int, Field(ge=2)]

    def sources(self) -> Mapping[str, str]:
        """Its two ends."""
        return {"start": self.start, "end": self.end}

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """One a point, numbered from the start, also where its ends have no checkpoints."""
        return [Point(step_id(number), number) for number in range(self.points)]

    def means(self, timeline: Timeline) -> list[Mean]:
        """At point i of n, the share i / (n - 1) of the way."""
        start, end = (timeline.measured(name)[-1].id for name in (self.start, self.end))
        found = []
        for number, point in enumerate(self.checkpoints(timeline)):
            share = number / (self.points - 1)
            members = (Member("start", start, 1 - share), Member("end", end, share))
            found.append(Mean(*point, members))
        return found
