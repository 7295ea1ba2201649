"""Learning-rate schedules, each with a linear warmup over `warmup` steps to `peak`."""

import math
from dataclasses import dataclass
from typing import Literal

Shape = Literal["linear", "1-sqrt"]


@dataclass(frozen=True)
class Warm:
    """Fields of all schedules."""

    kind: str
    peak: float
    warmup: int


@dataclass(frozen=True)
class Constant(Warm):
    """The peak rate after the warmup."""

    kind: Literal["constant"]


@dataclass(frozen=True)
class Wsd(Warm):
    """Constant until step `start`, then a cooldown over `length` steps from `rate` to `floor`."""

    kind: Literal["wsd"]
    floor: float
    start: int
    length: int
    shape: Shape
    rate: float | None = None


@dataclass(frozen=True)
class Cosine(Warm):
    """Half a cosine from `peak` to `floor` at step `stop`."""

    kind: Literal["cosine"]
    floor: float
    stop: int


@dataclass(frozen=True)
class StageSchedule(Warm):
    """A stage after pre-training: `length` steps from `start` on, warmup and half a cosine."""

    kind: Literal["stage"]
    floor: float
    start: int
    length: int
    name: str


@dataclass(frozen=True)
class InverseSqrt(Warm):
    """The peak rate times the root of `warmup` / step."""

    kind: Literal["inverse-sqrt"]


Schedule = Constant | InverseSqrt | Wsd | Cosine | StageSchedule


def learning_rate(schedule: Schedule, step: int) -> float:
    """Return the learning rate of the update after `step` updates."""
    peak, warmup = schedule.peak, schedule.warmup
    if isinstance(schedule, StageSchedule):
        step -= schedule.start
    if step < warmup:
        return peak * (step + 1) / warmup
    match schedule:
        case Constant():
            return peak
        case InverseSqrt():
            return peak * math.sqrt(warmup / step)
        case Wsd(start=start, length=length, rate=rate):
            peak = peak if rate is None else rate
            done = min(max((step - start) / length, 0.0), 1.0)
            remaining = 1 - done if schedule.shape == "linear" else 1 - math.sqrt(done)
        case Cosine(stop=length) | StageSchedule(length=length):
            done = min((step - warmup) / max(length - warmup, 1), 1.0)
            remaining = (1 + math.cos(math.pi * done)) / 2
    return schedule.floor + (peak - schedule.floor) * remaining


def phase(schedule: Schedule, step: int) -> str:
    """Return the phase of the checkpoint after `step` updates."""
    if isinstance(schedule, StageSchedule):
        return schedule.name
    if step < schedule.warmup:
        return "warmup"
    if isinstance(schedule, Cosine | InverseSqrt):
        return "decay"
    return "cooldown" if isinstance(schedule, Wsd) and step >= schedule.start else "stable"
