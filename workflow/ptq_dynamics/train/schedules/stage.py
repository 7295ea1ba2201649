"""A stage after pre-training: a warmup from zero, then half a cosine."""

from typing import Literal

from ptq_dynamics.train.schedules import Schedule
from ptq_dynamics.train.schedules.cosine import half_cosine


class StageSchedule(Schedule):
    """The stage `name`, `length` steps from `start` on, warmup included."""

    kind: Literal["stage"]
    floor: float
    start: int
    length: int
    name: str

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of the update after `step` updates of all runs."""
        return super().learning_rate(step - self.start)

    def after_warmup(self, step: int) -> float:
        """Return the rate `step` updates after the beginning of the stage."""
        return half_cosine(step - self.warmup, self.length - self.warmup, self.peak, self.floor)

    def decay(self, last: int) -> range:
        """Return the steps from the end of the stage's warmup on."""
        return range(self.start + self.warmup, self.start + self.length)

    def phase(self, step: int) -> str:
        """Return the name of the stage."""
        return self.name
