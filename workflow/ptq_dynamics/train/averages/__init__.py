"""Averages of checkpoints, written by the stage `train.average`."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from ptq_dynamics.base.components import OneOf, found
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.train.settings import Mean, Member
from ptq_dynamics.train.timeline import PlannedTrajectory, Point, Timeline


class Average(PlannedTrajectory):
    """A trajectory of means of checkpoints."""

    stage: ClassVar[str] = "train.average"
    phase: ClassVar[Literal["average", "interpolation"]] = "average"

    @abstractmethod
    def means(self, timeline: Timeline) -> list[Mean]:
        """Return all means; their members name sources by label."""

    def run(self, name: str, timeline: Timeline) -> str:
        """Return the run that the last source follows."""
        source = self._last_source()
        return timeline.trajectories[source].run(source, timeline)

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """Return a checkpoint for each mean."""
        return [Point(mean.id, mean.step) for mean in self.means(timeline)]


class OfOne(Average):
    """Means of checkpoints of one trajectory."""

    trajectory: str

    def sources(self) -> Mapping[str, str]:
        """Return the averaged trajectory."""
        return {"trajectory": self.trajectory}

    def ids(self, timeline: Timeline) -> dict[int, str]:
        """Return ids of the trajectory's checkpoints by step."""
        points = timeline.checkpoints(self.trajectory)
        return {point.step: point.id for point in points if point.step is not None}

    def mean(self, name: str, weights: Mapping[int, float], timeline: Timeline) -> Mean:
        """Return a mean at its last step, from the weights of checkpoints by step."""
        ids = self.ids(timeline)
        members = (Member("trajectory", ids[step], weight) for step, weight in weights.items())
        return Mean(name, max(weights), tuple(members))

    def check(self, place: str, timeline: Timeline) -> None:
        """Raise `Problem` if the trajectory has checkpoints, but none that make a mean."""
        points = timeline.checkpoints(self.trajectory)
        if points and not self.means(timeline):
            measured = len(timeline.measured(self.trajectory))
            raise Problem(
                f"{place} has no average: {self.trajectory} has too few checkpoints, or others "
                f"({len(points)} from {points[0].id} to {points[-1].id}, {measured} measured); "
                "change their number or interval here, or checkpoint_every of the run"
            )


def _kind(data: Any) -> str:
    # The kind that shares most keys with an entry, and lacks the fewest required keys.
    keys = {*data} if isinstance(data, Mapping) else set[Any]()

    def fit(kind: type[Average]) -> tuple[int, int]:
        needed = {name for name, field in kind.model_fields.items() if field.is_required()}
        return len(keys & kind.model_fields.keys()), -len(needed - keys)

    return max(found(__name__, Average), key=fit).__name__


AnyAverage = Annotated[Average, OneOf(__name__, by=_kind)]
