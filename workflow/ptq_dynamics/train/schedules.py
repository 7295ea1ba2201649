"""Learning-rate schedules: pure functions of the step.

`learning_rate(schedule, step)` is the rate of the update that takes the model from `step` to
`step + 1`. Every schedule begins with a linear warmup over `warmup` steps to `peak`; that of a
stage begins where the stage does. A run that branches from a trunk has the Wsd schedule of trunk
and cooldown together.
"""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Constant:
    """The peak rate after the warmup."""

    kind: Literal["constant"]
    peak: float
    warmup: int


@dataclass(frozen=True)
class Wsd:
    """As constant until step `start`, then a cooldown over `length` steps to `floor`."""

    kind: Literal["wsd"]
    peak: float
    warmup: int
    floor: float
    start: int
    length: int
    shape: Literal["linear", "1-sqrt"]


@dataclass(frozen=True)
class Anneal:
    """From another schedule's `rate` at step `start` to `floor`, over `length` steps."""

    kind: Literal["anneal"]
    peak: float
    warmup: int
    rate: float
    floor: float
    start: int
    length: int
    shape: Literal["linear", "1-sqrt"]


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from `peak` to `floor` at step `stop`."""

    kind: Literal["cosine"]
    peak: float
    warmup: int
    floor: float
    stop: int


@dataclass(frozen=True)
class StageSchedule:
    """Of a stage after pre-training, called `name`: from step `start` on, over `length` steps, a
    warmup from nothing, then half a cosine to `floor`."""

    kind: Literal["stage"]
    peak: float
    warmup: int
    floor: float
    start: int
    length: int
    name: str


Schedule = Constant | Wsd | Anneal | Cosine | StageSchedule


def learning_rate(schedule: Schedule, step: int) -> float:
    """Learning rate of the update after `step` finished updates."""
    peak, warmup = schedule.peak, schedule.warmup
    if isinstance(schedule, StageSchedule):
        step -= schedule.start
    if step < warmup:
        return peak * (step + 1) / warmup
    match schedule:
        case Constant():
            return peak
        case Wsd():
            done = (step - schedule.start) / schedule.length
            remaining = _remaining(schedule.shape, min(max(done, 0.0), 1.0))
        case Anneal():
            peak = schedule.rate
            done = (step - schedule.start) / schedule.length
            remaining = _remaining(schedule.shape, min(max(done, 0.0), 1.0))
        case Cosine():
            done = (step - warmup) / (schedule.stop - warmup)
            remaining = (1 + math.cos(math.pi * min(done, 1.0))) / 2
        case StageSchedule():
            done = (step - warmup) / max(schedule.length - warmup, 1)
            remaining = (1 + math.cos(math.pi * min(done, 1.0))) / 2
    return schedule.floor + (peak - schedule.floor) * remaining


def _remaining(shape: Literal["linear", "1-sqrt"], done: float) -> float:
    """Share of the decay still ahead when the share `done` of a cooldown is behind."""
    return 1 - done if shape == "linear" else 1 - math.sqrt(done)


def phase(schedule: Schedule, step: int) -> str:
    """Name of the phase that a checkpoint after `step` updates belongs to."""
    if isinstance(schedule, StageSchedule):
        return schedule.name
    if step < schedule.warmup:
        return "warmup"
    match schedule:
        case Constant():
            return "stable"
        case Wsd():
            return "stable" if step < schedule.start else "cooldown"
        case Anneal():
            return "cooldown"
        case Cosine():
            return "decay"
