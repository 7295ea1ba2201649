"""Means at the end of a run whose weights fall with age."""

from collections.abc import Iterator, Sequence
from math import exp
from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Once, Share
from ptq_dynamics.train.averages import Tail, Tails
from ptq_dynamics.train.timeline import Timeline

# Memories after which a checkpoint weighs 2e-9 of the last one: less than float32 tells apart.
FORGOTTEN = 20


class Exponential(Tails):
    """Means of all checkpoints, one `every` so often, with the weight exp(−age / memory), one mean
    for each of the `memories`."""

    every: Share
    memories: Annotated[tuple[Share, ...], Field(min_length=1), Once]

    def tails(self, timeline: Timeline, steps: Sequence[int]) -> Iterator[Tail]:
        """One a memory."""
        end = steps[-1]
        taken = range(end, steps[0] - 1, -timeline.steps(self.every))
        if len(taken) < 2 or not {*steps}.issuperset(taken):
            return
        for memory in dict.fromkeys(map(timeline.steps, self.memories)):
            near = [step for step in taken if end - step <= FORGOTTEN * memory]
            # Rounded: the last digit of exp may differ between machines.
            weights = {step: float(f"{exp((step - end) / memory):.12g}") for step in near}
            yield f"memory-{memory}", weights
