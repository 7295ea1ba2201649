"""Settings of the stage that trains, as they cross the job border."""

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ptq_dynamics.train.schedules import Schedule

# Metrics that the curves of runs hold, and averages have not.
TRAINING = ("gradient_norm", "weight_norm")

S = TypeVar("S")


def read(kind: type[S], told: Any) -> S:
    """What a kind is set to, as the dataclass of its module; from JSON it comes as the fields."""
    return told if isinstance(told, kind) else kind(**told)


@dataclass(frozen=True)
class ModelSettings:
    """A model: the module in architectures/ that describes it, and what that is set to, its
    dataclass `Settings` (its fields, once read from JSON); `context` in tokens is the longest that
    it takes."""

    architecture: str
    shape: Any
    context: int
    vocabulary: int


@dataclass(frozen=True)
class OptimizerSettings:
    """An optimizer: the module in optimizers/ that makes it, and what that is set to, its own
    dataclass `Settings` (its fields, once read from JSON); so that a new kind changes no other's
    code."""

    module: str
    settings: Any


@dataclass(frozen=True)
class ObjectiveSettings:
    """What a run is trained for: the module in objectives/, and what that is set to, its own
    dataclass `Settings` (its fields, once read from JSON)."""

    module: str
    settings: Any


@dataclass(frozen=True)
class TrainSettings:
    """A run from fresh weights, a phase that goes on from the state of its trunk, or a stage that
    begins with the weights of the checkpoint `start` of another run, and nothing else of it.

    `batch` and `micro_batch` in sequences of `context` tokens; `first`, `last`, `checkpoint_steps`,
    `state_steps` and `log_every` in optimizer steps; `first_tokens` were seen before `first`;
    `data_first` is the step at which this data begins; `clip` is the largest gradient norm.
    """

    model: ModelSettings
    start: str | None
    objective: ObjectiveSettings
    batch: int
    micro_batch: int | None
    context: int
    precision: Literal["float32", "bfloat16"]
    compile: bool
    seed: int
    optimizer: OptimizerSettings
    clip: float
    schedule: Schedule
    first: int
    last: int
    first_tokens: int
    data_first: int
    checkpoint_steps: tuple[int, ...]
    state_steps: tuple[int, ...]
    log_every: int
