"""Averages of checkpoints in config/runs.yaml, one class a kind (see `kinds`)."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Discriminator, Field, Tag

from ptq_dynamics.config.fields import Share
from ptq_dynamics.config.kinds import Point, Timeline, Trajectory, tokenized
from ptq_dynamics.problem import Problem
from ptq_dynamics.trajectories.trajectory import step_id


class Lawa(Trajectory):
    """Uniform mean of the last `window` checkpoints, one `every` so often, of one trajectory; one
    wherever that is measured and has so many checkpoints behind it."""

    stage: ClassVar[str] = "trajectories.average"
    trajectory: str
    every: Share
    window: Annotated[int, Field(ge=2)]

    def sources(self) -> Mapping[str, str]:
        """The trajectory whose checkpoints it averages."""
        return {"trajectory": self.trajectory}

    def members(self, step: int, timeline: Timeline) -> list[int]:
        """Steps of the checkpoints in the average at `step`, the last one last."""
        every = timeline.steps(self.every)
        return [step - every * back for back in reversed(range(self.window))]

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """Those measured points of the source that have a whole window behind them."""
        known = {point.step for point in timeline.checkpoints(self.trajectory)}
        return [
            point
            for point in timeline.measured(self.trajectory)
            if point.step is not None and known.issuperset(self.members(point.step, timeline))
        ]

    def check(self, place: str, timeline: Timeline) -> None:
        """There is at least one average."""
        steps = [point.step for point in timeline.checkpoints(self.trajectory)]
        # A source without any is answered itself.
        if steps and not self.checkpoints(timeline):
            every = timeline.steps(self.every)
            raise Problem(
                f"{place} has no checkpoint of {self.trajectory} with {self.window - 1} others "
                f"before it, each {every} steps apart: its {len(steps)} checkpoints begin with "
                f"{steps[:3]} and end at {steps[-1]}; change every or window, or checkpoint_every "
                "of the run"
            )


class Line(Trajectory):
    """The line from the last checkpoint of one trajectory to that of another, in `points` equal
    steps, both ends counted."""

    stage: ClassVar[str] = "trajectories.average"
    start: str
    end: str
    points: Annotated[int, Field(ge=2)]

    def sources(self) -> Mapping[str, str]:
        """Its two ends."""
        return {"start": self.start, "end": self.end}

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """One a point, numbered from the start."""
        return [Point(step_id(number), number) for number in range(self.points)]

    def check(self, place: str, timeline: Timeline) -> None:
        """Both ends have one shape of model, and one tokenizer."""
        start, end = (timeline.trajectory(n).model_shape(timeline) for n in (self.start, self.end))
        if start.weights != end.weights or tokenized(start, timeline) != tokenized(end, timeline):
            raise Problem(
                f"{place} goes from {self.start} to {self.end}, whose models have other shapes or "
                "tokenizers; take two of one model"
            )
        if not self.seeds_in(timeline):
            raise Problem(f"{place} goes from {self.start} to {self.end}, which have no seed alike")


def _kind_of_average(data: Any) -> str:
    line = "start" in data if isinstance(data, dict) else isinstance(data, Line)
    return "line" if line else "lawa"


Average = Annotated[
    Annotated[Lawa, Tag("lawa")] | Annotated[Line, Tag("line")], Discriminator(_kind_of_average)
]
