"""Planned miniatures, whose rates and lengths follow from their public families."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import ClassVar

from ptq_dynamics.base import needs
from ptq_dynamics.plan.miniatures import InSmall, Miniature, MiniaturePhase, Stage
from ptq_dynamics.plan.planned import (
    Basis,
    Origin,
    PlannedTrajectory,
    TrainedShape,
    common_seeds,
)
from ptq_dynamics.plan.planned_runs import (
    PlannedBranch,
    PlannedRun,
    PlannedTrunk,
    nearest,
    plan_branch,
    plan_trunk,
)
from ptq_dynamics.train.schedules import Span
from ptq_dynamics.train.schedules.stage import StageSchedule
from ptq_dynamics.trajectories.trajectory import Point, step_id


def _interval(entry: InSmall, basis: Basis) -> int:
    """Return the interval that gives about `points` measured checkpoints."""
    return max(1, basis.steps(entry.length) // entry.points)


def plan_miniature(name: str, basis: Basis, entry: Miniature) -> PlannedTrunk:
    """Return a miniature of a public run from fresh weights, whose numbers are the scale's."""
    run, family = plan_trunk(name, basis, entry), entry.family or ""
    span = Span(entry.used_lr, basis.steps(entry.warmup), run.last)
    return replace(
        run,
        origin=Origin(family, entry.unknown, entry.uncertain_rate, family),
        optimizer=entry.optimizer,
        schedule=entry.schedule.in_steps(span, basis.steps),
        measured_every=_interval(entry, basis),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedPhase(PlannedBranch):
    """A miniature of a phase."""

    entry: MiniaturePhase

    @cached_property
    def measured(self) -> list[Point]:
        """The measured checkpoints of the cooldown, and `points` before it."""
        first, start, known = self.first, self.cooldown_start, self.checkpoints
        every = max(1, (start - first) // self.entry.points)
        late = {point for point in super().measured if (point.step or 0) >= start}
        early = {known[0], *nearest(known, range(first, start, every))}
        return sorted(early | late, key=attrgetter("step"))


def plan_phase(
    name: str, entry: MiniaturePhase, sources: Mapping[str, PlannedTrajectory], run: PlannedRun
) -> PlannedPhase:
    """Return a miniature of a phase after a run, with `cooldown_points` in its cooldown."""
    every = max(1, run.basis.steps(entry.cooldown) // entry.cooldown_points)
    return replace(plan_branch(PlannedPhase, name, entry, sources, run), measured_every=every)


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedStage(PlannedRun):
    """A stage after pre-training, from the weights alone of the run before."""

    restarts_from: ClassVar[str | None] = needs.AFTER

    entry: Stage

    @cached_property
    def checkpoints(self) -> list[Point]:
        """Checkpoints at regular steps and at the end, but not at the beginning."""
        last, every = self.last, self.spacing
        steps = sorted({*range(self.first + every, last, every), last})
        return [Point(step_id(step), step) for step in steps]


def plan_stage(
    name: str, entry: Stage, sources: Mapping[str, PlannedTrajectory], before: PlannedRun
) -> PlannedStage:
    """Return a stage after a run: a warmup and half a cosine."""
    basis, origin, model = before.basis, before.trunk.origin, before.trained.model
    first, length = before.last, basis.steps(entry.length)
    if entry.rotary_base is not None:
        model = model.model_copy(update={"rotary_base": entry.rotary_base})
    corpus, interval = entry.corpus or before.trunk.shape.corpus, _interval(entry, basis)
    return PlannedStage(
        name=name,
        basis=basis,
        sources=sources,
        entry=entry,
        before=before,
        shape=before.shape,
        trained=TrainedShape(model, corpus, entry.context, None, entry.batch),
        origin=replace(
            origin,
            family=entry.family or origin.family,
            uncertain="; ".join(filter(None, (entry.unknown, origin.uncertain))) or None,
        ),
        seeds=entry.seeds or common_seeds(sources),
        objective=entry.objective,
        optimizer=entry.optimizer,
        schedule=StageSchedule(
            kind="stage",
            peak=entry.used_lr,
            warmup=basis.steps(entry.warmup),
            floor=entry.floor * entry.used_lr,
            start=first,
            length=length,
            name=entry.name,
        ),
        first=first,
        last=first + length,
        data_first=first,
        spacing=interval,
        measured_every=interval,
    )
