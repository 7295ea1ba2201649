"""Settings of the stages `train.train` and `train.average`."""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.train.architectures import AnyArchitecture
from ptq_dynamics.train.objectives import AnyObjective
from ptq_dynamics.train.optimizers import AnyOptimizer
from ptq_dynamics.train.schedules import AnySchedule

# Metrics in the training curves of runs, which averages do not have.
TRAINING = ("gradient_norm", "weight_norm")


class TrainSettings(Strict):
    """A run from initial weights, the state of its trunk, or a checkpoint `start` of another run;
    `batch` and `micro_batch` in sequences of `context` tokens, schedule and budget in steps."""

    model: AnyArchitecture
    vocabulary: int
    start: str | None
    objective: AnyObjective
    batch: int
    micro_batch: int | None
    context: int
    precision: Literal["float32", "bfloat16"]
    compile: bool
    seed: int
    optimizer: AnyOptimizer
    budget: int
    clip: float
    schedule: AnySchedule
    first: int
    last: int
    first_tokens: int
    data_first: int
    checkpoint_steps: tuple[int, ...]
    state_steps: tuple[int, ...]
    log_every: int


class Member(NamedTuple):
    """A checkpoint of the input `source`, and its weight in a mean."""

    source: str
    checkpoint: str
    weight: float


class Mean(NamedTuple):
    """A weighted mean of checkpoints, saved like the last one of its members."""

    id: str
    step: int | None
    members: tuple[Member, ...]


class ChoosingText(NamedTuple):
    """Text that chooses the members of a soup: `blocks` of `context` tokens, `batch` at once."""

    context: int
    blocks: int
    batch: int


class AverageSettings(Strict):
    """Means of checkpoints of the inputs, all of one phase; with a `choice`, greedy soups."""

    phase: Literal["average", "interpolation"]
    means: tuple[Mean, ...]
    choice: Annotated[ChoosingText | None, Field(exclude_if=lambda choice: choice is None)] = None
