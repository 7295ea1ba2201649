"""Uniform means at the end of a run, with more or less between the checkpoints in them."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Once, Share
from ptq_dynamics.train.averages import Tail, Tails
from ptq_dynamics.train.timeline import Timeline


class Intervals(Tails):
    """Uniform means of the last `window` checkpoints, one for each of the `intervals` between them
    that the run has room and checkpoints for."""

    intervals: Annotated[tuple[Share, ...], Field(min_length=1), Once]
    window: Annotated[int, Field(ge=2)]

    def tails(self, timeline: Timeline, steps: Sequence[int]) -> Iterator[Tail]:
        """One an interval."""
        for every in dict.fromkeys(map(timeline.steps, self.intervals)):
            tail = dict.fromkeys((steps[-1] - every * back for back in range(self.window)), 1.0)
            if tail.keys() <= {*steps}:
                yield f"every-{every}", tail
