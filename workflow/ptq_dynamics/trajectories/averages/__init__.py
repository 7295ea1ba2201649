"""Averages of checkpoints, written by the stage `trajectories.average`."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from ptq_dynamics.base import needs
from ptq_dynamics.base.components import OneOf, kinds_in
from ptq_dynamics.base.fields import Share, Strict
from ptq_dynamics.trajectories.trajectory import Point


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


class SourcePoints(NamedTuple):
    """A trajectory to average: all its checkpoints in order, those that are measured, and ids of
    those that its authors averaged, if they are known."""

    checkpoints: Sequence[Point]
    measured: Sequence[Point]
    averaged: Sequence[str] = ()

    @property
    def ids(self) -> dict[int, str]:
        """Ids of the checkpoints by step."""
        return {point.step: point.id for point in self.checkpoints if point.step is not None}


Sources = Mapping[str, SourcePoints]  # by label
Steps = Callable[[Share], int]  # a share of the budget in whole steps


class Average(Strict):
    """A trajectory of means of checkpoints; `family` overrides that of its sources."""

    phase: ClassVar[Literal["average", "interpolation"]] = "average"

    family: Annotated[str, Field(min_length=1)] | None = None

    @abstractmethod
    def sources(self) -> Mapping[str, str]:
        """Return the names of its source trajectories by label."""

    @abstractmethod
    def means(self, sources: Sources, steps: Steps) -> list[Mean]:
        """Return all means; their members name sources by label."""

    def checkpoints(self, sources: Sources, steps: Steps) -> list[Point]:
        """Return a checkpoint for each mean."""
        return [Point(mean.id, mean.step) for mean in self.means(sources, steps)]


class OfOne(Average):
    """Means of checkpoints of one trajectory."""

    trajectory: str

    def sources(self) -> Mapping[str, str]:
        """Return the averaged trajectory."""
        return {needs.TRAJECTORY: self.trajectory}

    def means(self, sources: Sources, steps: Steps) -> list[Mean]:
        """Return all means of the trajectory."""
        return self.along(sources[needs.TRAJECTORY], steps)

    @abstractmethod
    def along(self, source: SourcePoints, steps: Steps) -> list[Mean]:
        """Return all means of a trajectory."""


def mean_of(ids: Mapping[int, str], name: str, weights: Mapping[int, float]) -> Mean:
    """Return a mean at its last step, from ids and weights of checkpoints by step."""
    members = (Member(needs.TRAJECTORY, ids[step], weight) for step, weight in weights.items())
    return Mean(name, max(weights), tuple(members))


def _kind(data: object) -> str:
    # The kind that shares most keys with an entry, and lacks the fewest required keys.
    keys = set[object](data) if isinstance(data, Mapping) else set[object]()

    def fit(kind: type[Average]) -> tuple[int, int]:
        needed = {name for name, field in kind.model_fields.items() if field.is_required()}
        return len(keys & kind.model_fields.keys()), -len(needed - keys)

    return max(kinds_in(__name__, Average), key=fit).__name__


AnyAverage = Annotated[Average, OneOf(__name__, by=_kind)]
