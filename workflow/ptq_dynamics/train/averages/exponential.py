"""Means at the end of a run whose weights fall with age."""

from math import exp
from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Once, Share
from ptq_dynamics.train.averages import Tails
from ptq_dynamics.train.settings import Mean
from ptq_dynamics.train.timeline import Timeline

# Memories after which a checkpoint weighs 2e-9 of the last one: less than float32 tells apart.
FORGOTTEN = 20


class Exponential(Tails):
    """Means of all checkpoints, one `every` so often, with the weight exp(−age / memory), one mean
    for each of the `memories`."""

    every: Share
    memories: Annotated[tuple[Share, ...], Field(min_length=1), Once]

    def means(self, timeline: Timeline) -> list[Mean]:
        """One a memory."""
        steps, every = self.known(timeline), timeline.steps(self.every)
        taken = range(steps[-1], steps[0] - 1, -every) if steps else range(0)
        if len(taken) < 2 or not {*steps}.issuperset(taken):
            return []
        found, end = [], taken[0]
        for memory in dict.fromkeys(map(timeline.steps, self.memories)):
            near = [step for step in taken if end - step <= FORGOTTEN * memory]
            # Rounded: the last digit of exp may differ between machines.
            weights = {step: float(f"{exp((step - end) / memory):.12g}") for step in near}
            found.append(self.mean(f"memory-{memory}", weights, timeline))
        return found
