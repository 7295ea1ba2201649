"""Settings of the stage `train.train`."""

from typing import Literal

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
