"""Uniform means at the end of a run, with more or less between the checkpoints in them."""

from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Once, Share
from ptq_dynamics.train.averages import Tails
from ptq_dynamics.train.settings import Mean
from ptq_dynamics.train.timeline import Timeline


class Intervals(Tails):
    """Uniform means of the last `window` checkpoints, one for each of the `intervals` between them
    that the run has room and checkpoints for."""

    intervals: Annotated[tuple[Share, ...], Field(min_length=1), Once]
    window: Annotated[int, Field(ge=2)]

    def means(self, timeline: Timeline) -> list[Mean]:
        """One an interval."""
        found, steps = [], self.known(timeline)
        for every in dict.fromkeys(map(timeline.steps, self.intervals)):
            tail = [step - every * back for step in steps[-1:] for back in range(self.window)]
            if tail and {*tail} <= {*steps}:
                found.append(self.mean(f"every-{every}", dict.fromkeys(tail, 1.0), timeline))
        return found
