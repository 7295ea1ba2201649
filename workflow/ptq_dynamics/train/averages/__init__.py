"""Averages of checkpoints, one module a kind: a class whose fields are its configuration, which
says what is in each of its means. The stage `train.average` writes them."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from ptq_dynamics.base.components import OneOf, found
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.train.settings import Mean, Member
from ptq_dynamics.train.timeline import PlannedTrajectory, Point, Timeline


class Average(PlannedTrajectory):
    """Means of checkpoints."""

    stage: ClassVar[str] = "train.average"
    phase: ClassVar[Literal["average", "interpolation"]] = "average"

    @abstractmethod
    def means(self, timeline: Timeline) -> list[Mean]:
        """All its means, by labels of its sources."""

    def run(self, name: str, timeline: Timeline) -> str:
        """The run that its last source follows."""
        source = self._last_source()
        return timeline.trajectories[source].run(source, timeline)

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """One a mean."""
        return [Point(mean.id, mean.step) for mean in self.means(timeline)]


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

    def mean(self, name: str, weights: Mapping[int, float], timeline: Timeline) -> Mean:
        """A mean by the weights of what is in it by step, which lies at the last step."""
        ids = self.ids(timeline)
        members = (Member("trajectory", ids[step], weight) for step, weight in weights.items())
        return Mean(name, max(weights), tuple(members))

    def check(self, place: str, timeline: Timeline) -> None:
        """There is at least one."""
        points = timeline.checkpoints(self.trajectory)
        # A source without any is answered itself.
        if points and not self.means(timeline):
            measured = len(timeline.measured(self.trajectory))
            raise Problem(
                f"{place} has no average: {self.trajectory} has too few checkpoints, or others "
                f"({len(points)} from {points[0].id} to {points[-1].id}, {measured} measured); "
                "change how many it takes or how often, or checkpoint_every of the run"
            )


class Tails(OfOne):
    """Several means of the last checkpoints of one trajectory, all at its end."""

    def known(self, timeline: Timeline) -> list[int]:
        """Steps at which the trajectory has checkpoints, up to its measured end."""
        end = timeline.measured(self.trajectory)[-1].step or 0
        return sorted(step for step in self.ids(timeline) if step <= end)

    def ages(self, timeline: Timeline) -> dict[str, float]:
        """Mean age of what is in each, in steps before the end, by the checkpoint's id."""
        steps, found = {name: step for step, name in self.ids(timeline).items()}, {}
        for mean in self.means(timeline):
            end, weight = mean.step or 0, sum(each.weight for each in mean.members)
            ages = (each.weight * (end - steps[each.checkpoint]) for each in mean.members)
            found[mean.id] = sum(ages) / weight
        return found


class OfSeveral(Average):
    """Means of the ends of several trajectories, which have one shape of model, one tokenizer, and
    a seed alike."""

    def check(self, place: str, timeline: Timeline) -> None:
        """They can be averaged."""
        names = list(self.sources().values())
        shapes = [timeline.trajectories[name].model_shape(timeline) for name in names]
        if len({(shape.model.weights, timeline.tokenized(shape)) for shape in shapes}) > 1:
            raise Problem(
                f"{place} averages {', '.join(names)}, whose models have other shapes or "
                "tokenizers; take those of one model"
            )
        if not self.seeds_in(timeline):
            raise Problem(f"{place} averages {', '.join(names)}, which have no seed alike")


def _kind(data: Any) -> str:
    # The kind that has most of an entry's keys, and of which it lacks the fewest.
    # What is no mapping is refused by whichever it is.
    keys = {*data} if isinstance(data, Mapping) else set[Any]()

    def fit(kind: type[Average]) -> tuple[int, int]:
        needed = {name for name, field in kind.model_fields.items() if field.is_required()}
        return len(keys & kind.model_fields.keys()), -len(needed - keys)

    return max(found(__name__, Average), key=fit).__name__


AnyAverage = Annotated[Average, OneOf(__name__, by=_kind)]
