"""Runs in config/runs.yaml, one class a kind (see `kinds`)."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ptq_dynamics.base.fields import Count, Once, Rate, Seed, Share
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.kinds import (
    Optimizer,
    Point,
    Timeline,
    Trajectory,
)
from ptq_dynamics.config.scale import TrainedShape
from ptq_dynamics.train.trajectory import step_id

Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), Once]
CooldownShape = Literal["linear", "1-sqrt"]


class Run(Trajectory):
    """What is trained here."""

    stage: ClassVar[str] = "train.train"
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    checkpoint_every: Share | None = None
    seeds: Seeds | None = None

    def run(self, name: str, timeline: Timeline) -> str:
        """Itself."""
        return name

    def sources(self) -> Mapping[str, str]:
        """None: it begins with fresh weights."""
        return {}

    def trained_by(self, timeline: Timeline) -> str:
        """Its family; without one, it is of the paper's controlled runs."""
        return self.family or self.whole(timeline).family or "controlled"

    def stands_for(self, timeline: Timeline) -> str | None:
        """The public model in whose place it is trained, if any."""
        return None

    @abstractmethod
    def whole(self, timeline: Timeline) -> "Whole":
        """The run from fresh weights that it is, or branches from."""

    @abstractmethod
    def ends(self, timeline: Timeline) -> tuple[int, int]:
        """First and last step."""

    def data_first(self, timeline: Timeline) -> int:
        """The step, perhaps a step that never was, at which its data begin."""
        return self.ends(timeline)[0]

    @abstractmethod
    def tokens_before(self, timeline: Timeline) -> int:
        """Tokens that its model has seen before its first step."""

    def tokens(self, timeline: Timeline) -> int:
        """Tokens that its model has seen at its end."""
        (first, last), shape = self.ends(timeline), self.trained(timeline)
        return self.tokens_before(timeline) + (last - first) * shape.batch * shape.context

    def trained(self, timeline: Timeline) -> TrainedShape:
        """Its model with the batch, the context and the corpus that it is trained with, where what
        is measured of it reads others."""
        return self.model_shape(timeline)

    @abstractmethod
    def optimizer_in(self, timeline: Timeline) -> Optimizer:
        """Its optimizer at this scale."""

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
        steps = [step for _, step in self.checkpoints(timeline) if step is not None]
        nearest = {min(steps, key=lambda step: abs(step - at)) for at in range(first, last, every)}
        wanted = {steps[0], *nearest, last}
        return [point for point in self.checkpoints(timeline) if point.step in wanted]


class Whole(Run):
    """A run from fresh weights; `floor` is the final share of the peak learning rate; `cooldown`
    and `shape` belong to the schedule wsd; a cosine ends at its `horizon`, beyond the run where it
    is cut short; `batch` in sequences, where it is not the scale's."""

    model: str = "main"
    schedule: Literal["constant", "wsd", "cosine"]
    peak_lr: Rate
    length: Share
    cooldown: Share | None = None
    shape: CooldownShape = "linear"
    warmup: Share | None = None
    horizon: Share | None = None
    batch: Count | None = None
    state_every: Share | None = None
    state_at: list[Share] = []
    optimizer: Optimizer | None = None

    @model_validator(mode="after")
    def _has_cooldown(self) -> "Whole":
        if (self.cooldown is not None) != (self.schedule == "wsd"):
            raise ValueError("cooldown goes with schedule wsd, and wsd with a cooldown")
        steady = self.length - (self.cooldown or 0)
        if steady < (self.warmup or 0):
            raise ValueError(
                f"warmup {self.warmup} and cooldown {self.cooldown} do not fit into length "
                f"{self.length}"
            )
        return self

    @model_validator(mode="after")
    def _ends_before_its_horizon(self) -> "Whole":
        if self.horizon is not None and self.schedule != "cosine":
            raise ValueError("horizon goes with schedule cosine")
        if self.horizon is not None and self.horizon < self.length:
            raise ValueError(f"horizon {self.horizon} comes before the end at {self.length}")
        return self

    @model_validator(mode="after")
    def _keeps_states_of_its_own(self) -> "Whole":
        beyond = [str(share) for share in self.state_at if share > self.length]
        if beyond:
            raise ValueError(f"state_at has {beyond[0]}, beyond its length {self.length}")
        return self

    def whole(self, timeline: Timeline) -> "Whole":
        """Itself."""
        return self

    def model_shape(self, timeline: Timeline) -> TrainedShape:
        """That of its model in the scale."""
        shape = timeline.scale.trained(self.model)
        return shape if self.batch is None else replace(shape, batch=self.batch)

    def papers_optimizer(self, timeline: Timeline) -> Optimizer:
        """Its optimizer as the paper has it."""
        return self.optimizer or timeline.defaults.optimizer

    def optimizer_in(self, timeline: Timeline) -> Optimizer:
        """Its optimizer at this scale."""
        regime = timeline.scale.regime
        return self.papers_optimizer(timeline).scaled(regime.peak_lr, regime.weight_decay)

    def seeds_in(self, timeline: Timeline) -> tuple[int, ...]:
        """Its own, or the configuration's."""
        return self.seeds or timeline.seeds

    def tokens_before(self, timeline: Timeline) -> int:
        """None."""
        return 0

    def ends(self, timeline: Timeline) -> tuple[int, int]:
        """From 0 to its length."""
        return 0, timeline.steps(self.length)

    def warmup_steps(self, timeline: Timeline) -> int:
        """Steps of its warmup."""
        factor = Fraction(str(timeline.scale.regime.warmup))
        return timeline.steps(factor * (self.warmup or timeline.defaults.warmup))

    def peak(self, timeline: Timeline) -> float:
        """Its peak learning rate at this scale."""
        return self.peak_lr * timeline.scale.regime.peak_lr

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
        warmup = self.warmup_steps(timeline)
        cooldown = timeline.steps(self.cooldown) if self.cooldown else 0
        steady = timeline.steps(self.length) - cooldown
        if warmup >= steady:
            raise Problem(
                f"{place}.warmup is {warmup} steps of the {steady} before the end or the cooldown; "
                "lower warmup, or make the run longer"
            )
