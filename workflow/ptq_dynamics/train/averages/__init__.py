"""Averages of checkpoints, one module a kind: a class whose fields are its configuration, which
says what is in each of its means. The stage `train.average` writes them.

Kinds are told apart by the keys of an entry.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Tag

from ptq_dynamics.base.components import found
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.train.settings import AverageSettings, Mean, Member
from ptq_dynamics.train.timeline import PlannedTrajectory, Point, Timeline


class Average(PlannedTrajectory):
    """Means of checkpoints."""

    stage: ClassVar[str] = "train.average"
    phase: ClassVar[Literal["average", "interpolation"]] = "average"

    @abstractmethod
    def means(self, timeline: Timeline) -> list[Mean]:
        """All its means, by labels of its sources."""

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """One a mean."""
        return [Point(mean.id, mean.step) for mean in self.means(timeline)]

    def settings(self, points: Sequence[Point], timeline: Timeline) -> AverageSettings:
        """What its stage needs to make these points."""
        chosen = {point.id for point in points}
        means = tuple(mean for mean in self.means(timeline) if mean.id in chosen)
        return AverageSettings(phase=self.phase, means=means)


class OfOne(Average):
    """Means of checkpoints of one trajectory."""

    trajectory: str

    def sources(self) -> Mapping[str, str]:
        """The trajectory whose checkpoints it averages."""
        return {"trajectory": self.trajectory}

    def ids(self, timeline: Timeline) -> dict[int, str]:
        """Ids of the trajectory's checkpoints by step."""
        points = timeline.checkpoints(self.trajectory)
        return {point.step: point.id for point in points if point.step is not None}


# Id of a mean, and the weights of what is in it by step, the last one first.
Tail = tuple[str, dict[int, float]]


class Tails(OfOne):
    """Several means of the last checkpoints of one trajectory, all at its end."""

    @abstractmethod
    def tails(self, timeline: Timeline, steps: Sequence[int]) -> Iterable[Tail]:
        """What is in each, where its trajectory has checkpoints at some steps and ends at the last
        of them."""

    def _tails(self, timeline: Timeline) -> dict[str, dict[int, float]]:
        end = timeline.measured(self.trajectory)[-1].step or 0
        known = [step for step in self.ids(timeline) if step <= end]
        return dict(self.tails(timeline, sorted(known))) if known else {}

    def means(self, timeline: Timeline) -> list[Mean]:
        """One a tail."""
        ids = self.ids(timeline)
        return [
            Mean(name, max(tail), tuple(Member("trajectory", ids[s], w) for s, w in tail.items()))
            for name, tail in self._tails(timeline).items()
        ]

    def ages(self, timeline: Timeline) -> dict[str, float]:
        """Mean age of what is in each, in steps before the end, by the checkpoint's id."""
        return {
            name: sum((max(tail) - step) * weight for step, weight in tail.items())
            / sum(tail.values())
            for name, tail in self._tails(timeline).items()
        }

    def check(self, place: str, timeline: Timeline) -> None:
        """There is at least one."""
        if timeline.checkpoints(self.trajectory) and not self.means(timeline):
            raise Problem(
                f"{place} has no average for which {self.trajectory} has the checkpoints; change "
                "its intervals, or checkpoint_every of the run"
            )


class OfSeveral(Average):
    """Means of the ends of several trajectories, which have one shape of model, one tokenizer, and
    a seed alike."""

    @property
    @abstractmethod
    def does(self) -> str:
        """What it does with them, in words."""

    def check(self, place: str, timeline: Timeline) -> None:
        """They can be averaged."""
        shapes = [timeline.trajectory(n).model_shape(timeline) for n in self.sources().values()]
        if len({(shape.model.weights, timeline.tokenized(shape)) for shape in shapes}) > 1:
            raise Problem(
                f"{place} {self.does}, whose models have other shapes or tokenizers; take those of "
                "one model"
            )
        if not self.seeds_in(timeline):
            raise Problem(f"{place} {self.does}, which have no seed alike")


def _kind(data: Any) -> str:
    """Name of the kind that has most of an entry's keys, and of which it lacks the fewest."""
    if not isinstance(data, Mapping):
        return type(data).__name__

    def fit(kind: type[Average]) -> tuple[int, int]:
        fields = kind.model_fields.items()
        lacking = [name for name, field in fields if field.is_required() and name not in data]
        return len(data.keys() & kind.model_fields.keys()), -len(lacking)

    return max(_KINDS, key=fit).__name__


_KINDS = found(__name__, Average)  # type: ignore[type-abstract]
if TYPE_CHECKING:
    AnyAverage = Average
else:
    _TAGGED = [Annotated[kind, Tag(kind.__name__)] for kind in _KINDS]
    AnyAverage = Annotated[reduce(or_, _TAGGED), Discriminator(_kind)]
