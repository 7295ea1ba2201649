"""Planned miniatures, whose rates and lengths follow from their public families."""

from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import ClassVar

from ptq_dynamics.base import needs
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus.sources.dialogues import DialoguesCorpus
from ptq_dynamics.plan.miniatures import InSmall, Miniature, MiniaturePhase, Stage
from ptq_dynamics.plan.planned import Basis, Origin, TrainedShape
from ptq_dynamics.plan.planned_branches import PlannedBranch
from ptq_dynamics.plan.planned_runs import PlannedRun, PlannedTrunk, nearest
from ptq_dynamics.train.objectives import Objective
from ptq_dynamics.train.optimizers import Optimizer
from ptq_dynamics.train.schedules.stage import StageSchedule
from ptq_dynamics.trajectories.averages import Point
from ptq_dynamics.trajectories.trajectory import step_id


def _interval(entry: InSmall, basis: Basis) -> int:
    """Return the interval that gives about `points` measured checkpoints."""
    return max(1, basis.steps(entry.length) // entry.points)


@dataclass(frozen=True, eq=False)
class PlannedMiniature(PlannedTrunk):
    """A miniature of a public run from fresh weights."""

    entry: Miniature

    @property
    def origin(self) -> Origin:
        """The public model that it replaces."""
        entry, family = self.entry, self.entry.family or ""
        return Origin(family, entry.unknown, entry.uncertain_rate, family)

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer, which has the scale's numbers."""
        return self.entry.optimizer

    @property
    def peak(self) -> float:
        """The peak learning rate."""
        return self.entry.used_lr

    @property
    def warmup(self) -> int:
        """The steps of the warmup."""
        return self.basis.steps(self.entry.warmup)

    @property
    def measured_every(self) -> int:
        """The interval that gives about `points` checkpoints."""
        return _interval(self.entry, self.basis)


@dataclass(frozen=True, eq=False)
class PlannedPhase(PlannedBranch):
    """A miniature of a phase."""

    entry: MiniaturePhase

    @property
    def measured_every(self) -> int:
        """The interval that gives `cooldown_points` checkpoints in the cooldown."""
        return max(1, self.basis.steps(self.entry.cooldown) // self.entry.cooldown_points)

    @cached_property
    def measured(self) -> list[Point]:
        """The measured checkpoints of the cooldown, and `points` before it."""
        first, start, known = self.first, self.cooldown_start, self.checkpoints
        every = max(1, (start - first) // self.entry.points)
        late = {point for point in super().measured if (point.step or 0) >= start}
        early = {known[0], *nearest(known, range(first, start, every))}
        return sorted(early | late, key=attrgetter("step"))


@dataclass(frozen=True, eq=False)
class PlannedStage(PlannedRun):
    """A stage after pre-training, from the weights alone of the run before."""

    restarts_from: ClassVar[str | None] = needs.AFTER

    entry: Stage
    before: PlannedRun

    @property
    def origin(self) -> Origin:
        """The public model, and also what is uncertain of the stage."""
        origin = super().origin
        uncertain = "; ".join(filter(None, (self.entry.unknown, origin.uncertain))) or None
        return replace(origin, uncertain=uncertain)

    @property
    def shape(self) -> TrainedShape:
        """The shape of the run before."""
        return self.before.shape

    @cached_property
    def trained(self) -> TrainedShape:
        """The shape with the stage's own fields."""
        model, entry = self.before.trained.model, self.entry
        if entry.rotary_base is not None:
            model = model.model_copy(update={"rotary_base": entry.rotary_base})
        corpus = entry.corpus or self.trunk.shape.corpus
        return TrainedShape(model, corpus, entry.context, None, entry.batch)

    @property
    def objective(self) -> Objective:
        """The stage's own objective."""
        return self.entry.objective

    @property
    def optimizer(self) -> Optimizer:
        """The stage's own optimizer."""
        return self.entry.optimizer

    @cached_property
    def first(self) -> int:
        """The end of the run before."""
        return self.before.last

    @cached_property
    def last(self) -> int:
        """The stage's own end."""
        return self.first + self.basis.steps(self.entry.length)

    @cached_property
    def schedule(self) -> StageSchedule:
        """The stage's warmup and half a cosine, in steps."""
        entry = self.entry
        return StageSchedule(
            kind="stage",
            peak=entry.used_lr,
            warmup=self.basis.steps(entry.warmup),
            floor=entry.floor * entry.used_lr,
            start=self.first,
            length=self.last - self.first,
            name=entry.name,
        )

    @property
    def measured_every(self) -> int:
        """The interval that gives about `points` checkpoints."""
        return _interval(self.entry, self.basis)

    @cached_property
    def checkpoints(self) -> list[Point]:
        """Checkpoints at regular steps and at the end, but not at the beginning."""
        last, every = self.last, self.measured_every
        steps = sorted({*range(self.first + every, last, every), last})
        return [Point(step_id(step), step) for step in steps]

    def check(self, place: str) -> None:
        """Require dialogues if the objective needs them."""
        super().check(place)
        corpus, objective = self.trained.corpus, self.entry.objective
        is_dialogues = isinstance(self.basis.scale.corpora[corpus], DialoguesCorpus)
        if objective.of_dialogues and not is_dialogues:
            why = f"needs dialogues; corpus {corpus!r} has none; choose one with source dialogues"
            raise Problem(f"{place}.objective is {objective.kind!r}, which {why}")
