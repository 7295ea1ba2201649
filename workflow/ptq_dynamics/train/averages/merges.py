"""Means of the last measured checkpoints of several trajectories."""

from collections.abc import Mapping
from operator import not_
from typing import Annotated, ClassVar

from pydantic import Field

from ptq_dynamics.base.fields import Once, Rate
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.train.averages import Average
from ptq_dynamics.train.settings import Mean, Member
from ptq_dynamics.train.timeline import Point, Timeline
from ptq_dynamics.train.trajectory import step_id


class OfSeveral(Average):
    """Means of the ends of several trajectories of one model and tokenizer."""

    def check(self, place: str, timeline: Timeline) -> None:
        """Raise `Problem` if models or tokenizers differ, or without a common seed."""
        names = list(self.sources().values())
        shapes = [timeline.trajectories[name].model_shape(timeline) for name in names]
        if len({(shape.model.weights, timeline.tokenized(shape)) for shape in shapes}) > 1:
            raise Problem(
                f"{place} averages {', '.join(names)}, whose models differ in shape or tokenizer; "
                "name trajectories of one model"
            )
        if not self.seeds_in(timeline):
            raise Problem(f"{place} averages {', '.join(names)}, without a common seed; add one")


class Interpolation(OfSeveral):
    """The line between the ends of two trajectories, as `points` equally spaced points."""

    phase: ClassVar = "interpolation"

    start: str
    end: str
    points: Annotated[int, Field(ge=2)]

    def sources(self) -> Mapping[str, str]:
        """Return both trajectories by label."""
        return {"start": self.start, "end": self.end}

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """Return the points, numbered from the start, even if the trajectories are empty."""
        return [Point(step_id(number), number) for number in range(self.points)]

    def means(self, timeline: Timeline) -> list[Mean]:
        """Weight the end by i / (n - 1) at point i of n."""
        start, end = (timeline.measured(name)[-1].id for name in (self.start, self.end))
        found = []
        for number, point in enumerate(self.checkpoints(timeline)):
            share = number / (self.points - 1)
            members = (Member("start", start, 1 - share), Member("end", end, share))
            found.append(Mean(*point, members))
        return found


class Merge(OfSeveral):
    """One mean of the ends of trajectories, with weights by name. The last one gives the tokenizer.
    Members of a `greedy` soup do not raise its loss on other text than the validation text."""

    merge: (
        Annotated[dict[str, Rate], Field(min_length=1)]
        | Annotated[tuple[str, ...], Field(min_length=1), Once]
    )

    greedy: Annotated[bool, Field(exclude_if=not_)] = False

    def sources(self) -> Mapping[str, str]:
        """Return the trajectories by label."""
        return {f"merge.{name}": name for name in self.merge}

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """Return the one mean, even if the trajectories are empty."""
        return [Point("merged", None)]

    def means(self, timeline: Timeline) -> list[Mean]:
        """Return the one mean."""
        weights = self.merge if isinstance(self.merge, dict) else dict.fromkeys(self.merge, 1.0)
        ingredients = (
            Member(f"merge.{name}", timeline.measured(name)[-1].id, weight)
            for name, weight in weights.items()
        )
        return [Mean("merged", None, tuple(ingredients))]
