"""Settings of the stages that make trajectories, as they cross the job border."""

from typing import Literal, NamedTuple

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.train.architectures import AnyArchitecture
from ptq_dynamics.train.objectives import AnyObjective
from ptq_dynamics.train.optimizers import AnyOptimizer
from ptq_dynamics.train.schedules import Schedule

# Metrics that the curves of runs hold, and averages have not.
TRAINING = ("gradient_norm", "weight_norm")


class TrainSettings(Strict):
    """A run from fresh weights, a phase that goes on from the state of its trunk, or a stage that
    begins with the weights `start` of another run. `batch` and `micro_batch` in sequences of
    `context` tokens; `first_tokens` were seen before the step `first`, and the data begins at the
    step `data_first`; `budget`, `log_every` and what is named steps are optimizer steps."""

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
    schedule: Schedule
    first: int
    last: int
    first_tokens: int
    data_first: int
    checkpoint_steps: tuple[int, ...]
    state_steps: tuple[int, ...]
    log_every: int


class Member(NamedTuple):
    """A checkpoint of the input with the label `source`, and its weight in a mean."""

    source: str
    checkpoint: str
    weight: float


class Mean(NamedTuple):
    """The weighted mean of checkpoints as a checkpoint: its id, its step, if any, and its members,
    the one that it is saved like last."""

    id: str
    step: int | None
    members: tuple[Member, ...]


class AverageSettings(Strict):
    """Means of checkpoints of the inputs, which all belong to one phase."""

    phase: Literal["average", "interpolation"]
    means: tuple[Mean, ...]
