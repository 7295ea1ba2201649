"""Planned runs from fresh weights (`trunk`) and from the state of another run (`branch`): steps,
schedules, optimizers, checkpoints and tokens at a scale."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from operator import attrgetter

from ptq_dynamics.base import needs
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import require
from ptq_dynamics.config.runs import Branch, Trunk
from ptq_dynamics.plan.planned import (
    Basis,
    Origin,
    PlannedTrajectory,
    TrainedShape,
    common_seeds,
)
from ptq_dynamics.train.objectives import Objective
from ptq_dynamics.train.optimizers import Optimizer
from ptq_dynamics.train.schedules import Schedule, Span
from ptq_dynamics.train.schedules.constant import Constant
from ptq_dynamics.train.schedules.wsd import Wsd
from ptq_dynamics.trajectories.trajectory import Point, step_id


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedRun(PlannedTrajectory):
    """A run that a scale trains from the step `first` to `last`, and the run `before` that it
    continues, if any. `shape` is that in measurements, `trained` that in training. The data begin
    at `data_first`, which may be negative. Checkpoints are `spacing` steps apart, measured ones
    about `measured_every`. At `state_steps` the run keeps its state for branches."""

    before: "PlannedRun | None" = None
    trained: TrainedShape
    objective: Objective
    optimizer: Optimizer
    schedule: Schedule
    first: int
    last: int
    data_first: int
    spacing: int
    measured_every: int
    state_steps: tuple[int, ...] = ()

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

    def tokens_at(self, step: int) -> int:
        """Return the tokens that the model has seen at a step."""
        seen = self.before.tokens_at(self.first) if self.before else 0
        return seen + (step - self.first) * self.trained.batch_tokens

    @property
    def passes(self) -> float:
        """Passes over its text, with those of the runs that it continues."""
        corpus, ends = self.trained.corpus, [run.first for run in self.lineage[1:]]
        pairs = zip(self.lineage, [*ends, self.last], strict=True)
        steps = ((end - run.first, run.trained) for run, end in pairs)
        read = sum(n * trained.batch_tokens for n, trained in steps if trained.corpus == corpus)
        return read / self.basis.scale.corpora[corpus].train

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


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedTrunk(PlannedRun):
    """A run from fresh weights."""

    entry: Trunk

    @property
    def published_optimizer(self) -> Optimizer:
        """The optimizer with the paper's numbers."""
        return self.entry.optimizer or self.basis.defaults.optimizer

    def check(self, place: str) -> None:
        """Require a warmup that ends before the run ends and before the rate decays."""
        schedule, last = self.schedule, self.last
        steady = min(last - 1, schedule.decay(last).start if schedule.decay(last) else last)
        if schedule.warmup > steady:
            why = f"but {steady} come before the end or cooldown; lower it, or lengthen the run"
            raise Problem(f"{place}.warmup is {schedule.warmup} steps, {why}")


def plan_trunk(name: str, basis: Basis, entry: Trunk) -> PlannedTrunk:
    """Return a run from fresh weights, with the factors of the scale's regime."""
    steps, regime, measure = basis.steps, basis.scale.regime, basis.scale.measure
    place = f"config/runs.yaml: runs.{name}"
    shape = basis.shape(entry.model).with_batch(entry.batch_factor, place)
    last = steps(entry.length)
    warmup = Fraction(str(regime.warmup_factor)) * (entry.warmup or basis.defaults.warmup)
    span = Span(entry.peak_lr * regime.peak_lr_factor, steps(warmup), last)
    optimizer = entry.optimizer or basis.defaults.optimizer
    state_every = steps(entry.state_every) if entry.state_every else last + 1
    states = {*range(state_every, last + 1, state_every), *map(steps, entry.state_at)}
    spacing = basis.spacing(entry)
    # A short run is measured more often.
    at_most = last // measure.trunk_least // spacing * spacing
    return PlannedTrunk(
        name=name,
        basis=basis,
        entry=entry,
        shape=shape,
        trained=shape,
        origin=Origin("controlled"),
        seeds=entry.seeds or basis.seeds,
        has_own_seeds=bool(entry.seeds),
        objective=entry.objective,
        optimizer=optimizer.scaled(regime.peak_lr_factor, regime.weight_decay_factor),
        schedule=entry.schedule.in_steps(span, steps),
        first=0,
        last=last,
        data_first=0,
        spacing=spacing,
        measured_every=min(steps(measure.trunk_every), max(spacing, at_most)),
        state_steps=tuple(sorted(states)),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedBranch(PlannedRun):
    """A run from the state of its trunk. Its cooldown begins at the step `cooldown_start`; about
    `steady_points` checkpoints before it are measured, if this is set."""

    entry: Branch
    cooldown_start: int
    steady_points: int | None = None

    @cached_property
    def measured(self) -> list[Point]:
        """The measured checkpoints, those of the cooldown apart from those before it."""
        if self.steady_points is None:
            return super().measured
        first, start, points = self.first, self.cooldown_start, self.checkpoints
        late = {point for point in super().measured if (point.step or 0) >= start}
        regular = range(first, start, max(1, (start - first) // self.steady_points))
        return sorted({points[0], *nearest(points, regular), *late}, key=attrgetter("step"))

    def check(self, place: str) -> None:
        """Require a trunk that keeps a state at the branch point."""
        trunk, entry, step = self.trunk, self.entry, self.first
        if entry.steady and not isinstance(trunk.schedule, Constant):
            why = f"needs a trunk with a constant rate, unlike {entry.trunk}"
            raise Problem(f"{place}.steady {why}")
        kept = trunk.state_steps
        if step not in kept or entry.at > trunk.entry.length:
            near = sorted(kept, key=lambda other: abs(other - step))[:3]
            why = f"where its trunk {trunk.name} keeps no state (the nearest: {near or 'none'})"
            mend = "change at, or state_every, state_at or length of the trunk"
            raise Problem(f"{place}.at is step {step}, {why}; {mend}")
        if entry.weights:
            average = self.sources[needs.WEIGHTS]
            ends = [point.step for point in average.checkpoints[-1:]]
            if ends != [step] or average.shape.model.weights != trunk.shape.model.weights:
                what = f"an average that ends at step {step} and has the shape of {trunk.name}"
                raise Problem(f"{place}.weights is {entry.weights}; name {what}")
        super().check(place)


def plan_branch(
    name: str, entry: Branch, sources: Mapping[str, PlannedTrajectory]
) -> PlannedBranch:
    """Return a branch of a run."""
    run = sources[needs.TRUNK]
    assert isinstance(run, PlannedRun)
    basis, trunk = run.basis, run.trunk
    first, before = basis.steps(entry.at), trunk.schedule
    cooldown_start = first + (basis.steps(entry.steady) if entry.steady else 0)
    last = cooldown_start + basis.steps(entry.cooldown)
    shape = replace(trunk.shape, corpus=entry.corpus or trunk.shape.corpus)
    shape = shape.with_batch(entry.batch_factor, f"config/runs.yaml: runs.{name}")
    is_constant = isinstance(before, Constant)
    start = cooldown_start if is_constant else first
    # Its own corpus starts at its beginning; other data continue.
    read = 0 if entry.corpus is not None else -(-first * trunk.shape.batch // shape.batch)
    return PlannedBranch(
        name=name,
        basis=basis,
        sources=sources,
        entry=entry,
        before=run,
        shape=shape,
        trained=shape,
        origin=trunk.origin,
        seeds=entry.seeds or common_seeds(sources),
        has_own_seeds=trunk.has_own_seeds or bool(entry.seeds),
        # With the weights of an average, its curve does not continue that of the trunk.
        branched=None if entry.weights else (entry.trunk, first),
        objective=entry.objective or trunk.objective,
        optimizer=trunk.optimizer,
        schedule=Wsd(
            kind="wsd",
            peak=before.peak,
            warmup=before.warmup,
            floor=entry.floor * before.peak,
            start=start,
            length=last - start,
            shape=entry.shape,
            rate=None if is_constant else before.learning_rate(first),
        ),
        first=first,
        cooldown_start=cooldown_start,
        last=last,
        data_first=first - read,
        spacing=basis.spacing(entry),
        measured_every=basis.steps(basis.scale.measure.cooldown_every),
    )
