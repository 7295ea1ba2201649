"""Type of config/runs.yaml: runs from fresh weights, and those that go on from another's state."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from ptq_dynamics.base.fields import Count, Named, Once, Rate, Seed, Share, Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import require
from ptq_dynamics.train.averages import AnyAverage
from ptq_dynamics.train.optimizers import AnyOptimizer
from ptq_dynamics.train.schedules import Shape
from ptq_dynamics.train.timeline import PlannedTrajectory, Point, Timeline, TrainedShape
from ptq_dynamics.train.trajectory import step_id


class Run(PlannedTrajectory):
    """What is trained here."""

    stage: ClassVar[str] = "train.train"
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    checkpoint_every: Share | None = None
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1), Once] | None = None

    def before(self, timeline: Timeline) -> "Run":
        """The run that it goes on from, of one that does."""
        (name,) = self.sources().values()
        return timeline.config.runs.runs[name]

    def whole(self, timeline: Timeline) -> "Whole":
        """The run from fresh weights that it is, or that it all began with."""
        return self if isinstance(self, Whole) else self.before(timeline).whole(timeline)

    def trained_by(self, timeline: Timeline) -> str:
        """Its family; without one, it is of the paper's controlled runs."""
        return self.family or self.whole(timeline).family or "controlled"

    def stands_for(self, timeline: Timeline) -> str | None:
        """The public model in whose place it is trained, if any."""
        whole = self.whole(timeline)
        return whole.family if hasattr(whole, "used_lr") else None

    def uncertain(self, timeline: Timeline) -> tuple[str | None, bool]:
        """What is uncertain of that."""
        whole = self.whole(timeline)
        return getattr(whole, "unknown", None), getattr(whole, "uncertain_rate", False)

    def seeds_in(self, timeline: Timeline) -> tuple[int, ...]:
        """Its own, or those of the run before, or the configuration's."""
        return self.seeds or (super().seeds_in(timeline) if self.sources() else timeline.seeds)

    @abstractmethod
    def ends(self, timeline: Timeline) -> tuple[int, int]:
        """First and last step."""

    def data_first(self, timeline: Timeline) -> int:
        """The step, perhaps a step that never was, at which its data begin."""
        return self.ends(timeline)[0]

    def tokens(self, timeline: Timeline, step: int | None = None) -> int:
        """Tokens that its model has seen at a step of it, or at its end."""
        (first, last), shape = self.ends(timeline), self.trained(timeline)
        seen = self.before(timeline).tokens(timeline, first) if self.sources() else 0
        return seen + ((last if step is None else step) - first) * shape.batch * shape.context

    def trained(self, timeline: Timeline) -> TrainedShape:
        """Its model with the batch, the context and the corpus that it is trained with, where what
        is measured of it reads others."""
        return self.model_shape(timeline)

    def optimizer_in(self, timeline: Timeline) -> AnyOptimizer:
        """Its optimizer at this scale; it goes on with the state of the run before."""
        return self.whole(timeline).optimizer_in(timeline)

    @abstractmethod
    def measured_every(self, timeline: Timeline) -> int:
        """Steps between the checkpoints that are measured."""

    def spacing(self, timeline: Timeline) -> int:
        """Steps between its checkpoints."""
        return timeline.steps(self.checkpoint_every or timeline.defaults.checkpoint_every)

    def checkpoints(self, timeline: Timeline) -> list[Point]:
        """The multiples of the spacing and both ends, but not step 0."""
        (first, last), every = self.ends(timeline), self.spacing(timeline)
        inner = range(first - first % every + every, last, every)
        steps = sorted({*([first] if first else []), *inner, last})
        return [Point(step_id(step), step) for step in steps]

    def measured(self, timeline: Timeline) -> list[Point]:
        """One so often from its beginning, or the nearest there is, and both ends."""
        (first, last), every = self.ends(timeline), self.measured_every(timeline)
        points = self.checkpoints(timeline)
        found = {points[0], *nearest(points, range(first, last, every)), points[-1]}
        return sorted(found, key=step_of)

    def check(self, place: str, timeline: Timeline) -> None:
        """Its corpus is known, and has the tokenizer that it all began with."""
        corpus, read = self.trained(timeline).corpus, self.whole(timeline).model_shape(timeline)
        require(f"{place}.corpus", "corpus", [corpus], timeline.scale.corpora)
        if timeline.tokenized(self.trained(timeline)) != timeline.tokenized(read):
            raise Problem(
                f"{place}.corpus is {corpus!r}, whose tokenizer is not that of {read.corpus!r}, "
                "the run's first corpus; choose a corpus with the same tokenizer"
            )


def step_of(point: Point) -> int:
    """Its step, or 0 where it has none."""
    return point.step or 0


def nearest(points: list[Point], steps: range) -> set[Point]:
    """The points that lie nearest to some steps."""
    return {min(points, key=lambda point: abs(step_of(point) - at)) for at in steps}


class Whole(Run):
    """A run from fresh weights; `floor` is the final share of the peak learning rate; `cooldown`
    and `shape` belong to the schedule wsd; a cosine ends at its `horizon`, beyond the run where it
    is cut short; `batch` in sequences, where it is not the scale's."""

    model: str = "main"
    schedule: Literal["constant", "wsd", "cosine"]
    peak_lr: Rate
    length: Share
    cooldown: Share | None = None
    shape: Shape = "linear"
    warmup: Share | None = None
    horizon: Share | None = None
    batch: Count | None = None
    state_every: Share | None = None
    state_at: list[Share] = []
    optimizer: AnyOptimizer | None = None

    @model_validator(mode="after")
    def _fits(self) -> "Whole":
        if (self.cooldown is not None) != (self.schedule == "wsd"):
            raise ValueError("cooldown goes with schedule wsd, and wsd with a cooldown")
        horizon = self.horizon
        if horizon is not None and (self.schedule != "cosine" or horizon < self.length):
            raise ValueError(f"horizon {horizon} is of a cosine, not before its end {self.length}")
        return self

    def model_shape(self, timeline: Timeline) -> TrainedShape:
        """That of its model in the scale."""
        shape = timeline.scale.trained(self.model)
        return shape if self.batch is None else replace(shape, batch=self.batch)

    def optimizer_in(self, timeline: Timeline) -> AnyOptimizer:
        """Its optimizer at this scale."""
        regime, papers = timeline.scale.regime, self.optimizer or timeline.defaults.optimizer
        return papers.scaled(regime.peak_lr_factor, regime.weight_decay_factor)

    def ends(self, timeline: Timeline) -> tuple[int, int]:
        """From 0 to its length."""
        return 0, timeline.steps(self.length)

    def warmup_steps(self, timeline: Timeline) -> int:
        """Steps of its warmup."""
        factor = Fraction(str(timeline.scale.regime.warmup_factor))
        return timeline.steps(factor * (self.warmup or timeline.defaults.warmup))

    def peak(self, timeline: Timeline) -> float:
        """Its peak learning rate at this scale."""
        return self.peak_lr * timeline.scale.regime.peak_lr_factor

    def state_steps(self, timeline: Timeline) -> list[int]:
        """Steps at which it keeps its whole state for others to branch off."""
        every = timeline.steps(self.state_every) if self.state_every else None
        regular = range(every, timeline.steps(self.length) + 1, every) if every else ()
        return sorted({*regular, *map(timeline.steps, self.state_at)})

    def measured_every(self, timeline: Timeline) -> int:
        """As the scale says; a short run more often."""
        measure, spacing = timeline.scale.measure, self.spacing(timeline)
        at_most = timeline.steps(self.length) // measure.trunk_least
        return min(timeline.steps(measure.trunk_every), max(spacing, at_most // spacing * spacing))

    def check(self, place: str, timeline: Timeline) -> None:
        """Its warmup ends before its cooldown begins."""
        cooldown = timeline.steps(self.cooldown) if self.cooldown else 0
        warmup, steady = self.warmup_steps(timeline), timeline.steps(self.length) - cooldown
        if warmup >= steady:
            raise Problem(
                f"{place}.warmup is {warmup} steps of the {steady} before the end or the cooldown; "
                "lower it, or make the run longer"
            )


class Branch(Run):
    """What goes on from another run's state: over `steady` steps at its constant rate, if any, then
    a cooldown, from whatever rate the run has there; `floor` as a share of the peak. With a
    `corpus` of its own it begins its data anew; without, it goes on with the data of its trunk.
    `batch` in sequences."""

    trunk: str
    at: Share
    cooldown: Share
    steady: Share | None = None
    shape: Shape = "linear"
    corpus: str | None = None
    batch: Count | None = None

    def sources(self) -> Mapping[str, str]:
        """Its trunk."""
        return {"trunk": self.trunk}

    def model_shape(self, timeline: Timeline) -> TrainedShape:
        """Its trunk's, with what the phase has of its own."""
        shape = self.whole(timeline).model_shape(timeline)
        return replace(shape, corpus=self.corpus or shape.corpus, batch=self.batch or shape.batch)

    def data_first(self, timeline: Timeline) -> int:
        """Where it begins, with data of its own; else, with another batch, so that it goes on after
        what its trunk has seen."""
        first, _ = self.ends(timeline)
        if self.corpus is not None:
            return first
        before, now = self.whole(timeline).model_shape(timeline), self.model_shape(timeline)
        return first - -(-first * before.batch // now.batch)

    def ends(self, timeline: Timeline) -> tuple[int, int]:
        """From where it branches off to the end of its cooldown."""
        start = self.cooldown_start(timeline)
        return timeline.steps(self.at), start + timeline.steps(self.cooldown)

    def cooldown_start(self, timeline: Timeline) -> int:
        """Step at which its cooldown begins."""
        return timeline.steps(self.at) + (timeline.steps(self.steady) if self.steady else 0)

    def measured_every(self, timeline: Timeline) -> int:
        """As the scale says for cooldowns."""
        return timeline.steps(timeline.scale.measure.cooldown_every)

    def check(self, place: str, timeline: Timeline) -> None:
        """Its trunk has no cooldown of its own, and a state where it branches off."""
        runs = timeline.trajectories.items()
        trunks = [n for n, run in runs if isinstance(run, Whole) and run.schedule != "wsd"]
        kind = "run from fresh weights without a cooldown"
        require(f"{place}.trunk", kind, [self.trunk], trunks)
        trunk = self.whole(timeline)
        if self.steady and trunk.schedule != "constant":
            raise Problem(f"{place}.steady is of a constant rate, which {self.trunk} has not")
        step, kept = timeline.steps(self.at), trunk.state_steps(timeline)
        if step not in kept or self.at > trunk.length:
            near = sorted(kept, key=lambda other: abs(other - step))[:3]
            raise Problem(
                f"{place}.at is step {step}, where its trunk {self.trunk} keeps no state to branch "
                f"from (the nearest: {near or 'none'}); change at, or state_every, state_at or "
                "length of the trunk"
            )
        super().check(place, timeline)


def _kind_of_run(data: Any) -> str:
    has_trunk = "trunk" in data if isinstance(data, dict) else isinstance(data, Branch)
    return "branch" if has_trunk else "whole"


AnyRun = Annotated[
    Annotated[Whole, Tag("whole")] | Annotated[Branch, Tag("branch")], Discriminator(_kind_of_run)
]


class RunDefaults(Strict):
    """What runs share unless they say otherwise; `clip` is the largest gradient norm."""

    optimizer: AnyOptimizer
    clip: Rate
    warmup: Share
    checkpoint_every: Share


class Runs(Strict):
    """Controlled runs and the averages of their checkpoints, by name."""

    defaults: RunDefaults
    runs: Named[AnyRun]
    averages: Named[AnyAverage]
