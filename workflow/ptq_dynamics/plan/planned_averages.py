"""Planned averages: means of checkpoints of their source trajectories."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.plan.planned import Basis, PlannedTrajectory, common_seeds
from ptq_dynamics.trajectories.averages import Average, Mean, OfOne, SourcePoints
from ptq_dynamics.trajectories.trajectory import Checkpoint, Point


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedAverage(PlannedTrajectory):
    """A trajectory of means of checkpoints."""

    entry: Average

    @cached_property
    def _ingredients(self) -> dict[str, SourcePoints]:
        return {
            label: SourcePoints(source.checkpoints, source.measured, source.averaged)
            for label, source in self.sources.items()
        }

    @cached_property
    def means(self) -> list[Mean]:
        """All means; their members name sources by label."""
        return self.entry.means(self._ingredients, self.basis.steps)

    @cached_property
    def checkpoints(self) -> list[Point]:
        """A checkpoint for each mean."""
        return self.entry.checkpoints(self._ingredients, self.basis.steps)

    @cached_property
    def ages(self) -> dict[str, float]:
        """The mean age of the members of each mean, in steps before its own step."""
        ages = dict[str, float]()
        for mean in self.means:
            source = self._ingredients[mean.members[0].source]
            steps = {point.id: point.step or 0 for point in source.checkpoints}
            weight = sum(member.weight for member in mean.members)
            old = (m.weight * ((mean.step or 0) - steps[m.checkpoint]) for m in mean.members)
            ages[mean.id] = sum(old) / weight
        return ages

    @cached_property
    def planned_checkpoints(self) -> tuple[Checkpoint, ...]:
        """The means, with the most tokens of their members, if sources have any."""
        tokens = {
            (label, planned.id): planned.tokens
            for label, source in self.sources.items()
            for planned in source.planned_checkpoints
        }
        if not tokens:
            return ()
        planned = list[Checkpoint]()
        for mean in self.means:
            seen = [tokens.get((member.source, member.checkpoint)) for member in mean.members]
            known = [count for count in seen if count is not None]
            most = max(known) if len(known) == len(seen) else None
            planned.append(Checkpoint(mean.id, mean.step, most, None, self.entry.phase))
        return tuple(planned)

    @property
    def last_source(self) -> PlannedTrajectory:
        """The source that gives model, family and learning rate."""
        return list(self.sources.values())[-1]

    @property
    def followed(self) -> PlannedTrajectory:
        """The run or public model that the last source follows."""
        return self.last_source.followed

    def check(self, place: str) -> None:
        """Require a mean, or ends of one model with a common seed."""
        if isinstance(self.entry, OfOne):
            source = self.last_source
            if (points := source.checkpoints) and not self.means:
                known = f"{len(points)} from {points[0].id} to {points[-1].id}"
                raise Problem(
                    f"{place} has no average: {source.name} has too few checkpoints, or others "
                    f"({known}, {len(source.measured)} measured); change their number or interval "
                    "here, or checkpoint_every of the run"
                )
            return
        names = ", ".join(source.name for source in self.sources.values())
        if len({source.form for source in self.sources.values()}) > 1:
            why = "whose models differ in shape or tokenizer; name trajectories of one model"
            raise Problem(f"{place} averages {names}, {why}")
        if not self.seeds:
            raise Problem(f"{place} averages {names}, without a common seed; add one")


def plan_average(
    name: str, basis: Basis, entry: Average, sources: Mapping[str, PlannedTrajectory]
) -> PlannedAverage:
    """Return an average; model and family are those of its last source, but for its own family."""
    *_, source = sources.values()
    return PlannedAverage(
        name=name,
        basis=basis,
        sources=sources,
        entry=entry,
        shape=source.shape,
        origin=replace(source.origin, family=entry.family or source.origin.family),
        seeds=common_seeds(sources),
        has_own_seeds=source.has_own_seeds,
    )
