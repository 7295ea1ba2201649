"""A merge: one weighted mean of the last checkpoints of several trajectories."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Once, Rate
from ptq_dynamics.train.averages import OfSeveral
from ptq_dynamics.train.settings import Mean, Member
from ptq_dynamics.train.timeline import Point, Timeline


class Merge(OfSeveral):
    """One mean of the last measured checkpoints of several trajectories, with weights by their
    names, of which the shares count, or with equal ones; the last one named decides how it is
    saved. Of one alone, it is the end of that: what is released may be one ingredient."""

    merge: (
        Annotated[dict[str, Rate], Field(min_length=1)]
        | Annotated[tuple[str, ...], Field(min_length=1), Once]
    )

    def sources(self) -> Mapping[str, str]:
        """The trajectories at whose ends its ingredients lie."""
        return {f"merge.{name}": name for name in self.merge}

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """The one that it is, also where its sources have none."""
        return [Point("merged", None)]

    def means(self, timeline: Timeline) -> list[Mean]:
        """The one that it is."""
        weights = self.merge if isinstance(self.merge, dict) else dict.fromkeys(self.merge, 1.0)
        ingredients = (
            Member(f"merge.{name}", timeline.measured(name)[-1].id, weight)
            for name, weight in weights.items()
        )
        return [Mean("merged", None, tuple(ingredients))]
