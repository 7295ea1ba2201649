"""LAWA (section 4): the uniform mean of the last checkpoints along a run, equal steps apart."""

from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Share
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.train.averages import OfOne
from ptq_dynamics.train.settings import Mean, Member
from ptq_dynamics.train.timeline import Timeline


class Lawa(OfOne):
    """Uniform mean of the last `window` checkpoints, one `every` so often, of one trajectory; one
    wherever that is measured and has so many checkpoints behind it."""

    every: Share
    window: Annotated[int, Field(ge=2)]

    def means(self, timeline: Timeline) -> list[Mean]:
        """One a measured point of the source that has a whole window behind it."""
        found, every, ids = list[Mean](), timeline.steps(self.every), self.ids(timeline)
        for point in timeline.measured(self.trajectory):
            if point.step is not None:
                steps = [point.step - every * back for back in reversed(range(self.window))]
                if ids.keys() >= {*steps}:
                    members = (Member("trajectory", ids[step], 1.0) for step in steps)
                    found.append(Mean(*point, tuple(members)))
        return found

    def check(self, place: str, timeline: Timeline) -> None:
        """There is at least one average."""
        steps = [point.step for point in timeline.checkpoints(self.trajectory)]
        # A source without any is answered itself.
        if steps and not self.means(timeline):
            every = timeline.steps(self.every)
            raise Problem(
                f"{place} has no checkpoint of {self.trajectory} with {self.window - 1} others "
                f"before it, each {every} steps apart: its {len(steps)} checkpoints begin with "
                f"{steps[:3]} and end at {steps[-1]}; change every or window, or checkpoint_every "
                "of the run"
            )
