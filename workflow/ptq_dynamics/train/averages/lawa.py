"""LAWA (section 4): the uniform mean of the last checkpoints along a run, equal steps apart."""

from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Share
from ptq_dynamics.train.averages import OfOne
from ptq_dynamics.train.settings import Mean
from ptq_dynamics.train.timeline import Timeline


class Lawa(OfOne):
    """Uniform mean of the last `window` checkpoints, one `every` so often, of one trajectory; one
    wherever that is measured and has so many checkpoints behind it."""

    every: Share
    window: Annotated[int, Field(ge=2)]

    def means(self, timeline: Timeline) -> list[Mean]:
        """One a measured point of the source that has a whole window behind it."""
        found, every, known = list[Mean](), timeline.steps(self.every), {*self.ids(timeline)}
        for name, end in timeline.measured(self.trajectory):
            steps = [(end or 0) - every * back for back in reversed(range(self.window))]
            if known.issuperset(steps):
                found.append(self.mean(name, dict.fromkeys(steps, 1.0), timeline))
        return found
