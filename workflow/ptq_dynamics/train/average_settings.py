"""Settings of the stage that averages, as they cross the job border; apart from those of training,
so that a new kind of average trains no run again."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import mul
from typing import Literal

# Id of the only checkpoint of a merge.
MERGED = "merged"


@dataclass(frozen=True)
class LawaSettings:
    """At every one of `checkpoints` of the input, the mean of the last `window`, one every `every`
    steps."""

    kind: Literal["lawa"]
    checkpoints: tuple[str, ...]
    every: int
    window: int


@dataclass(frozen=True)
class Tail:
    """One mean of the last checkpoints of a trajectory: the id it gets, and the steps and weights
    of what is in it, the last one first."""

    id: str
    steps: tuple[int, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, name: str, weights: Mapping[int, float]) -> "Tail":
        """From weights by step."""
        return cls(name, tuple(weights), tuple(weights.values()))

    @property
    def mean_age(self) -> float:
        """Steps before the last one, in the weighted mean."""
        ages = [self.steps[0] - step for step in self.steps]
        return sum(map(mul, ages, self.weights)) / sum(self.weights)


@dataclass(frozen=True)
class TailsSettings:
    """Means of the last checkpoints of the input, at its end."""

    kind: Literal["tails"]
    tails: tuple[Tail, ...]


@dataclass(frozen=True)
class LineSettings:
    """The points with the numbers `points` of the `of` points on the line from the last checkpoint
    of one input to that of another, both ends counted."""

    kind: Literal["line"]
    points: tuple[int, ...]
    of: int


@dataclass(frozen=True)
class Ingredient:
    """A checkpoint of the input with the label `source`, and its weight in a merge."""

    source: str
    checkpoint: str
    weight: float


@dataclass(frozen=True)
class MergeSettings:
    """The weighted mean of checkpoints of several inputs, the one that it is saved like last."""

    kind: Literal["merge"]
    ingredients: tuple[Ingredient, ...]


@dataclass(frozen=True)
class LastSettings:
    """Uniform means of checkpoints of the input, those in each by id, the last one last."""

    kind: Literal["last"]
    windows: tuple[tuple[str, ...], ...]


AverageSettings = LawaSettings | TailsSettings | LineSettings | MergeSettings | LastSettings
