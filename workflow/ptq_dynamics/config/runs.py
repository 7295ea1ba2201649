"""Types of config/runs.yaml: runs from fresh weights, and branches of these runs."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from operator import attrgetter
from typing import Annotated, Any, ClassVar

from pydantic import Discriminator, Field, Tag, model_validator

from ptq_dynamics.base.fields import Count, Named, Once, Rate, Seed, Share, Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import require
from ptq_dynamics.train.averages import AnyAverage
from ptq_dynamics.train.objectives import AnyObjective
from ptq_dynamics.train.objectives.language import Language
from ptq_dynamics.train.optimizers import AnyOptimizer
from ptq_dynamics.train.schedules import AnyScheduled, Floor, Schedule, Shape, Span
from ptq_dynamics.train.schedules.constant import Constant
from ptq_dynamics.train.schedules.wsd import Wsd
from ptq_dynamics.train.timeline import PlannedTrajectory, Point, Timeline, TrainedShape
from ptq_dynamics.train.trajectory import step_id


class Run(PlannedTrajectory):
    """A run that a scale trains."""

    stage: ClassVar[str] = "train.train"
    checkpoint_every: Share | None = None
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1), Once] | None = None

    def before(self, timeline: Timeline) -> "Run":
        """Return the run that this one continues; defined for a run with sources."""
        return timeline.config.runs.runs[next(iter(self.sources().values()))]

    def whole(self, timeline: Timeline) -> "Whole":
        """Return the run from fresh weights at the beginning of the lineage."""
        return self if isinstance(self, Whole) else self.before(timeline).whole(timeline)

    def trained_by(self, timeline: Timeline) -> str:
        """Return the run's family, or `controlled` for the paper's own runs."""
        return self.family or self.whole(timeline).family or "controlled"

    def stands_for(self, timeline: Timeline) -> str | None:
        """Return the public model that this miniature replaces, if any."""
        whole = self.whole(timeline)
        return whole.family if hasattr(whole, "used_lr") else None

    def uncertain(self, timeline: Timeline) -> tuple[str | None, bool]:
        """Return what is uncertain of the public model that this miniature replaces."""
        whole = self.whole(timeline)
        return getattr(whole, "unknown", None), getattr(whole, "uncertain_rate", False)

    def seeds_in(self, timeline: Timeline) -> tuple[int, ...]:
        """Return the run's own seeds, those of the run before, or the configured ones."""
        return self.seeds or (super().seeds_in(timeline) if self.sources() else timeline.seeds)

    @abstractmethod
    def ends(self, timeline: Timeline) -> tuple[int, int]:
        """Return first and last step."""

    @abstractmethod
    def schedule_in(self, timeline: Timeline) -> Schedule:
        """Return the learning-rate schedule in steps."""

    def data_first(self, timeline: Timeline) -> int:
        """Return the step at which the data begin; it may be negative."""
        return self.ends(timeline)[0]

    def tokens(self, timeline: Timeline, step: int | None = None) -> int:
        """Return the tokens that the model has seen at a step, or at the end."""
        (first, last), shape = self.ends(timeline), self.trained(timeline)
        seen = self.before(timeline).tokens(timeline, first) if self.sources() else 0
        return seen + ((last if step is None else step) - first) * shape.batch * shape.context

    def trained(self, timeline: Timeline) -> TrainedShape:
        """Return the shape in training, if it differs from that in measurements."""
        return self.model_shape(timeline)

    def optimizer_in(self, timeline: Timeline) -> AnyOptimizer:
        """Return the optimizer at this scale, whose state continues along the lineage."""
        return self.whole(timeline).optimizer_in(timeline)

    @abstractmethod
    def measured_every(self, timeline: Timeline) -> int:
        """Return the number of steps between measured checkpoints."""

    def spacing(self, timeline: Timeline) -> int:
        """Return the number of steps between checkpoints."""
        return timeline.steps(self.checkpoint_every or timeline.defaults.checkpoint_every)

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """Return the multiples of the spacing and both ends, without step 0."""
        (first, last), every = self.ends(timeline), self.spacing(timeline)
        inner = range(first - first % every + every, last, every)
        steps = sorted({*([first] if first else []), *inner, last})
        return [Point(step_id(step), step) for step in steps]

    def measured(self, timeline: Timeline) -> list[Point]:
        """Return both ends, and the checkpoints nearest to the regular measured steps."""
        (first, last), every = self.ends(timeline), self.measured_every(timeline)
        points = self.checkpoints(timeline)
        found = {points[0], *nearest(points, range(first, last, every)), points[-1]}
        return sorted(found, key=attrgetter("step"))

    def check(self, place: str, timeline: Timeline) -> None:
        """Require a known corpus with the tokenizer of the run's first corpus."""
        corpus, read = self.trained(timeline).corpus, self.whole(timeline).model_shape(timeline)
        require(f"{place}.corpus", "corpus", [corpus], timeline.scale.corpora)
        if timeline.tokenized(self.trained(timeline)) != timeline.tokenized(read):
            why = f"whose tokenizer is not that of {read.corpus!r}, the run's first corpus"
            raise Problem(f"{place}.corpus is {corpus!r}, {why}; choose one with the same")


def nearest(points: list[Point], steps: range) -> set[Point]:
    """Return the checkpoints that lie nearest to some steps."""
    return {min(points, key=lambda point: abs((point.step or 0) - at)) for at in steps}


class Whole(Run):
    """A run from fresh weights; its `batch` is in sequences."""

    model: str = "main"
    schedule: AnyScheduled
    peak_lr: Rate
    length: Share
    warmup: Share | None = None
    batch: Count | None = None
    state_every: Share | None = None
    state_at: list[Share] = []
    optimizer: AnyOptimizer | None = None
    objective: Annotated[AnyObjective, Field(exclude_if=Language().__eq__)] = Language()

    @model_validator(mode="after")
    def _fits(self) -> "Whole":
        self.schedule.check(self.length)
        return self

    def model_shape(self, timeline: Timeline) -> TrainedShape:
        """Return the shape of the scale's model, with the run's batch."""
        shape = timeline.scale.trained(self.model)
        return shape if self.batch is None else replace(shape, batch=self.batch)

    def optimizer_in(self, timeline: Timeline) -> AnyOptimizer:
        """Return the optimizer with the scale's factors."""
        regime, papers = timeline.scale.regime, self.optimizer or timeline.defaults.optimizer
        return papers.scaled(regime.peak_lr_factor, regime.weight_decay_factor)

    def ends(self, timeline: Timeline) -> tuple[int, int]:
        """Return 0 and the length in steps."""
        return 0, timeline.steps(self.length)

    def warmup_steps(self, timeline: Timeline) -> int:
        """Return the steps of the warmup."""
        factor = Fraction(str(timeline.scale.regime.warmup_factor))
        return timeline.steps(factor * (self.warmup or timeline.defaults.warmup))

    def peak(self, timeline: Timeline) -> float:
        """Return the peak learning rate at this scale."""
        return self.peak_lr * timeline.scale.regime.peak_lr_factor

    def schedule_in(self, timeline: Timeline) -> Schedule:
        """Return the learning-rate schedule in steps."""
        last = timeline.steps(self.length)
        span = Span(self.peak(timeline), self.warmup_steps(timeline), last)
        return self.schedule.over(span, timeline.steps)

    def state_steps(self, timeline: Timeline) -> list[int]:
        """Return the steps at which the run keeps its state for branches."""
        every = timeline.steps(self.state_every) if self.state_every else None
        regular = range(every, timeline.steps(self.length) + 1, every) if every else ()
        return sorted({*regular, *map(timeline.steps, self.state_at)})

    def measured_every(self, timeline: Timeline) -> int:
        """Return the scale's interval, or a smaller one for a short run."""
        measure, spacing = timeline.scale.measure, self.spacing(timeline)
        at_most = timeline.steps(self.length) // measure.trunk_least
        return min(timeline.steps(measure.trunk_every), max(spacing, at_most // spacing * spacing))

    def check(self, place: str, timeline: Timeline) -> None:
        """Require a warmup that ends before the run ends and before the rate decays."""
        schedule, last = self.schedule_in(timeline), timeline.steps(self.length)
        steady = min(last - 1, schedule.decay(last).start if schedule.decay(last) else last)
        if schedule.warmup > steady:
            why = f"but {steady} come before the end or cooldown; lower it, or lengthen the run"
            raise Problem(f"{place}.warmup is {schedule.warmup} steps, {why}")


class Branch(Run):
    """A run from the state of its trunk: `steady` steps at a constant rate, if any, then a cooldown
    from the trunk's rate to the share `floor` of the peak rate. A branch starts at the beginning of
    its own `corpus`, or continues the data of its trunk. `batch` is in sequences. An average named
    `weights`, which ends at the branch point, replaces the weights of the trunk."""

    trunk: str
    at: Share
    cooldown: Share
    steady: Share | None = None
    shape: Shape = "linear"
    floor: Floor = 0.0
    corpus: str | None = None
    batch: Count | None = None
    weights: Annotated[str | None, Field(exclude_if=lambda name: name is None)] = None

    def sources(self) -> Mapping[str, str]:
        """Return the trunk, and the average that gives the weights."""
        return {"trunk": self.trunk} | ({"weights": self.weights} if self.weights else {})

    def model_shape(self, timeline: Timeline) -> TrainedShape:
        """Return the trunk's shape with the branch's corpus and batch."""
        shape = self.whole(timeline).model_shape(timeline)
        return replace(shape, corpus=self.corpus or shape.corpus, batch=self.batch or shape.batch)

    def data_first(self, timeline: Timeline) -> int:
        """Return the first step with a corpus; else the step at which the trunk's data continue."""
        first, _ = self.ends(timeline)
        if self.corpus is not None:
            return first
        before, now = self.whole(timeline).model_shape(timeline), self.model_shape(timeline)
        return first - -(-first * before.batch // now.batch)

    def ends(self, timeline: Timeline) -> tuple[int, int]:
        """Return the branch point and the end of the cooldown."""
        start = self.cooldown_start(timeline)
        return timeline.steps(self.at), start + timeline.steps(self.cooldown)

    def cooldown_start(self, timeline: Timeline) -> int:
        """Return the step at which the cooldown begins."""
        return timeline.steps(self.at) + (timeline.steps(self.steady) if self.steady else 0)

    def schedule_in(self, timeline: Timeline) -> Wsd:
        """Return a cooldown from the trunk's rate at the branch point, in steps."""
        trunk, (first, last) = self.whole(timeline).schedule_in(timeline), self.ends(timeline)
        is_constant = isinstance(trunk, Constant)
        start = self.cooldown_start(timeline) if is_constant else first
        return Wsd(
            kind="wsd",
            peak=trunk.peak,
            warmup=trunk.warmup,
            floor=self.floor * trunk.peak,
            start=start,
            length=last - start,
            shape=self.shape,
            rate=None if is_constant else trunk.learning_rate(first),
        )

    def measured_every(self, timeline: Timeline) -> int:
        """Return the scale's interval for cooldowns."""
        return timeline.steps(timeline.scale.measure.cooldown_every)

    def check(self, place: str, timeline: Timeline) -> None:
        """Require a trunk that keeps a state at the branch point."""
        every = timeline.trajectories
        trunks = [name for name, run in every.items() if isinstance(run, Whole)]
        require(f"{place}.trunk", "run from fresh weights", [self.trunk], trunks)
        trunk = self.whole(timeline)
        if self.steady and not isinstance(trunk.schedule_in(timeline), Constant):
            raise Problem(f"{place}.steady needs a trunk with a constant rate, unlike {self.trunk}")
        step, kept = timeline.steps(self.at), trunk.state_steps(timeline)
        if step not in kept or self.at > trunk.length:
            near = sorted(kept, key=lambda other: abs(other - step))[:3]
            why = f"where its trunk {self.trunk} keeps no state (the nearest: {near or 'none'})"
            mend = "change at, or state_every, state_at or length of the trunk"
            raise Problem(f"{place}.at is step {step}, {why}; {mend}")
        if self.weights:
            ends = [point.step for point in timeline.checkpoints(self.weights)[-1:]]
            theirs = every[self.weights].model_shape(timeline).model.weights
            if ends != [step] or theirs != trunk.model_shape(timeline).model.weights:
                what = f"an average that ends at step {step} and has the shape of {self.trunk}"
                raise Problem(f"{place}.weights is {self.weights}; name {what}")
        super().check(place, timeline)


def _kind_of_run(data: Any) -> str:
    has_trunk = "trunk" in data if isinstance(data, dict) else isinstance(data, Branch)
    return "branch" if has_trunk else "whole"


AnyRun = Annotated[
    Annotated[Whole, Tag("whole")] | Annotated[Branch, Tag("branch")], Discriminator(_kind_of_run)
]


class RunDefaults(Strict):
    """Defaults of all runs; `clip` is the largest gradient norm."""

    optimizer: AnyOptimizer
    clip: Rate
    warmup: Share
    checkpoint_every: Share


class Runs(Strict):
    """Controlled runs and averages of their checkpoints, by name."""

    defaults: RunDefaults
    runs: Named[AnyRun]
    averages: Named[AnyAverage]
