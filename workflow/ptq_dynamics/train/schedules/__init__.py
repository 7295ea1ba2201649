"""Learning-rate schedules. A module has a schedule's fields in `config/runs.yaml` (`Scheduled`), in
shares of the budget, and the schedule of a run in steps (`Schedule`)."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Share, Strict

Shape = Literal["linear", "1-sqrt"]
Floor = Annotated[float, Field(ge=0, le=1)]  # a share of the peak rate


class Schedule(Strict):
    """A learning rate by step: a linear warmup over `warmup` steps to `peak`, then the schedule's
    own rate."""

    kind: str
    peak: float
    warmup: int

    @abstractmethod
    def after_warmup(self, step: int) -> float:
        """Return the rate of the update after `step` updates, from the end of the warmup on."""

    @abstractmethod
    def decay(self, last: int) -> range:
        """Return the steps before `last`, the end of the run, over which the rate decays."""

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of the update after `step` updates."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        return self.after_warmup(step)

    def phase(self, step: int) -> str:
        """Return the phase of the checkpoint after `step` updates."""
        return "warmup" if step < self.warmup else "decay"


class Span(NamedTuple):
    """What a schedule needs to know of its run: peak rate, steps of the warmup, and last step."""

    peak: float
    warmup: int
    last: int


class Scheduled(Strict):
    """A schedule as a run's configuration has it."""

    kind: str

    @abstractmethod
    def in_steps(self, run: Span, steps: Callable[[Share], int]) -> Schedule:
        """Return the schedule of a run; `steps` are a share of the budget in steps."""

    def check(self, length: Share) -> None:
        """Raise `ValueError` if the schedule does not fit a run over a share of the budget."""


def _by_name(entry: object) -> object:
    return {"kind": entry} if isinstance(entry, str) else entry


AnySchedule = Annotated[Schedule, OneOf(__name__, by="kind")]
# `schedule: constant` is short for `schedule: {kind: constant}`.
AnyScheduled = Annotated[Scheduled, OneOf(__name__, by="kind"), BeforeValidator(_by_name)]
