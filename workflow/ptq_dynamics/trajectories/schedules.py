"""Learning-rate schedules: pure functions of the step.

`learning_rate(schedule, step)` is the rate of the update that takes the model from `step` to
`step + 1`. A schedule is plain data, as it stands in a job specification:

- constant: linear warmup over `warmup` steps, then `peak`.
- wsd: as constant until `start`, then a cooldown over `length` steps to `floor` (paper, section 4).
- cosine: linear warmup, then half a cosine from `peak` to `floor` at step `stop`.

A run that branches from a trunk has the wsd schedule of trunk and cooldown together.
"""

import math
from collections.abc import Mapping
from typing import Any

Schedule = Mapping[str, Any]


def learning_rate(schedule: Schedule, step: int) -> float:
    """Learning rate of the update after `step` finished updates."""
    peak, warmup = schedule["peak"], schedule["warmup"]
    if step < warmup:
        return peak * (step + 1) / warmup
    match schedule["kind"]:
        case "constant":
            return peak
        case "wsd":
            done = (step - schedule["start"]) / schedule["length"]
            remaining = _remaining(schedule["shape"], min(max(done, 0.0), 1.0))
        case "cosine":
            done = (step - warmup) / (schedule["stop"] - warmup)
            remaining = (1 + math.cos(math.pi * min(done, 1.0))) / 2
        case kind:
            raise ValueError(f"unknown schedule kind {kind!r}")
    return schedule["floor"] + (peak - schedule["floor"]) * remaining


def _remaining(shape: str, done: float) -> float:
    """Share of the decay still ahead when the share `done` of a cooldown is behind."""
    match shape:
        case "linear":
            return 1 - done
        case "1-sqrt":
            return 1 - math.sqrt(done)
    raise ValueError(f"unknown cooldown shape {shape!r}")


def phase(schedule: Schedule, step: int) -> str:
    """Name of the phase that a checkpoint after `step` updates belongs to."""
    if step < schedule["warmup"]:
        return "warmup"
    match schedule["kind"]:
        case "constant":
            return "stable"
        case "wsd":
            return "stable" if step < schedule["start"] else "cooldown"
    return "decay"
