"""Settings of the stage that averages, as they cross the job border; apart from those of training,
so that a new kind of average trains no run again."""

from dataclasses import dataclass
from typing import Literal


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
