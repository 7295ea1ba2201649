"""Planned runs: their steps, schedules, optimizers, checkpoints and tokens at a scale."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from operator import attrgetter
from typing import ClassVar

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import require
from ptq_dynamics.config.runs import Run, Whole
from ptq_dynamics.plan.planned import Origin, PlannedTrajectory, TrainedShape
from ptq_dynamics.train.objectives import Objective
from ptq_dynamics.train.optimizers import Optimizer
from ptq_dynamics.train.schedules import Schedule, Span
from ptq_dynamics.trajectories.averages import Point
from ptq_dynamics.trajectories.trajectory import step_id


@dataclass(frozen=True, eq=False)
class PlannedRun(PlannedTrajectory):
    """A run that a scale trains, and the run `before` that it continues, if any."""

    stage: ClassVar[str] = "train.train"
    restarts_from: ClassVar[str | None] = None  # label of the source whose weights alone it takes

    entry: Run
    before: "PlannedRun | None"

    @cached_property
    def lineage(self) -> list["PlannedRun"]:
        """The run and all runs that it continues, from fresh weights on."""
        return [*(self.before.lineage if self.before else ()), self]

    @cached_property
    def trunk(self) -> "PlannedTrunk":
        """The run from fresh weights at the beginning of the lineage."""
        trunk = self.lineage[0]
        assert isinstance(trunk, PlannedTrunk)
        return trunk

    @property
    def origin(self) -> Origin:
        """The run's family, or that of its trunk, and the trunk's public model."""
        origin = self.trunk.origin
        return replace(origin, family=self.entry.family or origin.family)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The run's own seeds, those of the run before, or the chosen ones."""
        return self.entry.seeds or (super().seeds if self.sources else self.basis.seeds)

    @property
    def has_own_seeds(self) -> bool:
        """Whether the run or its trunk names its seeds."""
        return bool(self.entry.seeds or self.trunk.entry.seeds)

    @property
    def trained(self) -> TrainedShape:
        """The shape in training, if it differs from that in measurements."""
        return self.shape

    @property
    def objective(self) -> Objective:
        """The objective."""
        return self.trunk.entry.objective

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer at this scale, whose state continues along the lineage."""
        return self.trunk.optimizer

    @cached_property
    @abstractmethod
    def first(self) -> int:
        """The first step."""

    @cached_property
    @abstractmethod
    def last(self) -> int:
        """The last step."""

    @cached_property
    @abstractmethod
    def schedule(self) -> Schedule:
        """The learning-rate schedule in steps."""

    @property
    @abstractmethod
    def measured_every(self) -> int:
        """The number of steps between measured checkpoints."""

    @property
    def data_first(self) -> int:
        """The step at which the data begin; it may be negative."""
        return self.first

    @property
    def state_steps(self) -> list[int]:
        """The steps at which the run keeps its state for branches."""
        return []

    @property
    def start(self) -> str | None:
        """Id of the checkpoint whose weights alone the run takes, if any."""
        source = self.sources.get(self.restarts_from or "")
        return None if source is None else source.checkpoints[-1].id

    def tokens_at(self, step: int) -> int:
        """Return the tokens that the model has seen at a step."""
        seen = self.before.tokens_at(self.first) if self.before else 0
        return seen + (step - self.first) * self.trained.batch_tokens

    @property
    def spacing(self) -> int:
        """The number of steps between checkpoints."""
        return self.basis.steps(self.entry.checkpoint_every or self.basis.defaults.checkpoint_every)

    @cached_property
    def checkpoints(self) -> list[Point]:
        """The multiples of the spacing and both ends, without step 0."""
        first, last, every = self.first, self.last, self.spacing
        inner = range(first - first % every + every, last, every)
        steps = sorted({*([first] if first else []), *inner, last})
        return [Point(step_id(step), step) for step in steps]

    @cached_property
    def measured(self) -> list[Point]:
        """Both ends, and the checkpoints nearest to the regular measured steps."""
        points = self.checkpoints
        regular = nearest(points, range(self.first, self.last, self.measured_every))
        return sorted({points[0], *regular, points[-1]}, key=attrgetter("step"))

    def check(self, place: str) -> None:
        """Require a known corpus with the tokenizer of the run's first corpus."""
        corpus, read, scale = self.trained.corpus, self.trunk.shape.corpus, self.basis.scale
        require(f"{place}.corpus", "corpus", [corpus], scale.corpora)
        if scale.base_corpus(corpus).tokenized != scale.base_corpus(read).tokenized:
            why = f"whose tokenizer is not that of {read!r}, the run's first corpus"
            raise Problem(f"{place}.corpus is {corpus!r}, {why}; choose one with the same")


def nearest(points: list[Point], steps: Iterable[int]) -> set[Point]:
    """Return the checkpoints that lie nearest to some steps."""
    return {min(points, key=lambda point: abs((point.step or 0) - step)) for step in steps}


@dataclass(frozen=True, eq=False)
class PlannedTrunk(PlannedRun):
    """A run from fresh weights."""

    entry: Whole

    @property
    def origin(self) -> Origin:
        """The run's family, or `controlled` for the paper's own runs."""
        return Origin(self.entry.family or "controlled")

    @cached_property
    def shape(self) -> TrainedShape:
        """The shape of the scale's model, with the run's batch."""
        shape = self.basis.shape(self.entry.model)
        return shape if self.entry.batch is None else replace(shape, batch=self.entry.batch)

    @property
    def published_optimizer(self) -> Optimizer:
        """The optimizer with the paper's numbers."""
        return self.entry.optimizer or self.basis.defaults.optimizer

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer with the scale's factors."""
        regime = self.basis.scale.regime
        return self.published_optimizer.scaled(regime.peak_lr_factor, regime.weight_decay_factor)

    @cached_property
    def first(self) -> int:
        """The first step, 0."""
        return 0

    @cached_property
    def last(self) -> int:
        """The length in steps."""
        return self.basis.steps(self.entry.length)

    @property
    def warmup(self) -> int:
        """The steps of the warmup."""
        factor = Fraction(str(self.basis.scale.regime.warmup_factor))
        return self.basis.steps(factor * (self.entry.warmup or self.basis.defaults.warmup))

    @property
    def peak(self) -> float:
        """The peak learning rate at this scale."""
        return self.entry.peak_lr * self.basis.scale.regime.peak_lr_factor

    @cached_property
    def schedule(self) -> Schedule:
        """The learning-rate schedule in steps."""
        span = Span(self.peak, self.warmup, self.last)
        return self.entry.schedule.over(span, self.basis.steps)

    @property
    def state_steps(self) -> list[int]:
        """The steps at which the run keeps its state for branches."""
        every = self.basis.steps(self.entry.state_every) if self.entry.state_every else None
        regular = range(every, self.last + 1, every) if every else ()
        return sorted({*regular, *map(self.basis.steps, self.entry.state_at)})

    @property
    def measured_every(self) -> int:
        """The scale's interval, or a smaller one for a short run."""
        measure, spacing = self.basis.scale.measure, self.spacing
        at_most = self.last // measure.trunk_least
        regular = self.basis.steps(measure.trunk_every)
        return min(regular, max(spacing, at_most // spacing * spacing))

    def check(self, place: str) -> None:
        """Require a warmup that ends before the run ends and before the rate decays."""
        schedule, last = self.schedule, self.last
        steady = min(last - 1, schedule.decay(last).start if schedule.decay(last) else last)
        if schedule.warmup > steady:
            why = f"but {steady} come before the end or cooldown; lower it, or lengthen the run"
            raise Problem(f"{place}.warmup is {schedule.warmup} steps, {why}")
