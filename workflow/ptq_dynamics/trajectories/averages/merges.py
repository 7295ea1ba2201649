"""Means of the last measured checkpoints of several trajectories."""

from collections.abc import Mapping
from operator import not_
from typing import Annotated, ClassVar

from pydantic import Field

from ptq_dynamics.base.fields import Once, Rate
from ptq_dynamics.trajectories.averages import Average, Mean, Member, Sources, Steps
from ptq_dynamics.trajectories.trajectory import Point, step_id


class Interpolation(Average):
    """The line between the ends of two trajectories, as `points` equally spaced points."""

    phase: ClassVar = "interpolation"

    start: str
    end: str
    points: Annotated[int, Field(ge=2)]

    def sources(self) -> Mapping[str, str]:
        """Return both trajectories by label."""
        return {"start": self.start, "end": self.end}

    def checkpoints(self, sources: Sources, steps: Steps) -> list[Point]:
        """Return the points, numbered from the start, even if the trajectories are empty."""
        return [Point(step_id(number), number) for number in range(self.points)]

    def means(self, sources: Sources, steps: Steps) -> list[Mean]:
        """Weight the end by i / (n - 1) at point i of n."""
        start, end = (sources[label].measured[-1].id for label in ("start", "end"))
        means = list[Mean]()
        for number, point in enumerate(self.checkpoints(sources, steps)):
            share = number / (self.points - 1)
            members = (Member("start", start, 1 - share), Member("end", end, share))
            means.append(Mean(*point, members))
        return means


class Merge(Average):
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

    def checkpoints(self, sources: Sources, steps: Steps) -> list[Point]:
        """Return the one mean, even if the trajectories are empty."""
        return [Point("merged", None)]

    def means(self, sources: Sources, steps: Steps) -> list[Mean]:
        """Return the one mean."""
        weights = self.merge if isinstance(self.merge, dict) else dict.fromkeys(self.merge, 1.0)
        members = (
            Member(label, sources[label].measured[-1].id, weights[name])
            for label, name in self.sources().items()
        )
        return [Mean("merged", None, tuple(members))]
