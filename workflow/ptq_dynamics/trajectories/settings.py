"""Settings of the stages that make trajectories, as they cross the job border."""

from dataclasses import dataclass
from typing import Literal

from ptq_dynamics.trajectories.optimizers.kinds import Optimizer
from ptq_dynamics.trajectories.schedules import Schedule


@dataclass(frozen=True)
class Shape:
    """A GPT-NeoX; `context` in tokens is the longest that it takes."""

    layers: int
    width: int
    heads: int
    feedforward: int
    rotary_fraction: float
    context: int
    vocabulary: int


@dataclass(frozen=True)
class TrainSettings:
    """A run from fresh weights, or a phase that goes on from the state of its trunk.

    `batch` and `micro_batch` in sequences of `context` tokens; `first`, `last`, `checkpoint_every`,
    `state_steps` and `log_every` in optimizer steps; `first_tokens` were seen before `first`;
    `data_first` is the step at which this data begins; `clip` is the largest gradient norm.
    """

    model: Shape
    batch: int
    micro_batch: int | None
    context: int
    precision: Literal["float32", "bfloat16"]
    compile: bool
    seed: int
    optimizer: Optimizer
    clip: float
    schedule: Schedule
    first: int
    last: int
    first_tokens: int
    data_first: int
    checkpoint_every: int
    state_steps: tuple[int, ...]
    log_every: int


@dataclass(frozen=True)
class LawaSettings:
    """At every one of `checkpoints` of the input, the mean of the last `window`, one every `every`
    steps."""

    kind: Literal["lawa"]
    checkpoints: tuple[str, ...]
    every: int
    window: int


@dataclass(frozen=True)
class LineSettings:
    """The points with the numbers `points` of the `of` points on the line from the last checkpoint
    of one input to that of another, both ends counted."""

    kind: Literal["line"]
    points: tuple[int, ...]
    of: int
