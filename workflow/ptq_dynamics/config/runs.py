"""Runs in config/runs.yaml, one class a kind (see `kinds`)."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag, model_validator

from ptq_dynamics.config.averages import Average
from ptq_dynamics.config.fields import Context, Count, Once, Rate, Seed, Share, Strict
from ptq_dynamics.config.kinds import (
    Optimizer,
    Point,
    RunDefaults,
    Timeline,
    Trajectory,
    require,
    tokenized,
)
from ptq_dynamics.config.names import Named
from ptq_dynamics.config.scale import TrainedShape
from ptq_dynamics.problem import Problem
from ptq_dynamics.trajectories.trajectory import step_id

Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), Once]
CooldownShape = Literal["linear", "1-sqrt"]


class Run(Trajectory):
    """What is trained here."""

    stage: ClassVar[str] = "trajectories.train"
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

    @abstractmethod
    def whole(self, timeline: Timeline) -> "Whole":
        """The run from fresh weights that it is, or branches from."""

    @abstractmethod
    def ends(self, timeline: Timeline) -> tuple[int, int]:
        """First and last step."""

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
    and `shape` belong to the schedule wsd."""

    model: str = "main"
    schedule: Literal["constant", "wsd", "cosine"]
    peak_lr: Rate
    length: Share
    cooldown: Share | None = None
    shape: CooldownShape = "linear"
    warmup: Share | None = None
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
        return timeline.scale.trained(self.model)

    def seeds_in(self, timeline: Timeline) -> tuple[int, ...]:
        """Its own, or the configuration's."""
        return self.seeds or timeline.seeds

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


class Branch(Run):
    """A cooldown that goes on from another run's state; `floor` as a share of the peak.

    A phase with `corpus`, `batch` (sequences) or `context` (tokens) of its own begins its data
    anew; without, it goes on with the data of its trunk.
    """

    trunk: str
    at: Share
    cooldown: Share
    shape: CooldownShape = "linear"
    corpus: str | None = None
    batch: Count | None = None
    context: Context | None = None

    def sources(self) -> Mapping[str, str]:
        """Its trunk."""
        return {"trunk": self.trunk}

    def whole(self, timeline: Timeline) -> "Whole":
        """Its trunk."""
        trunk = timeline.trajectory(self.trunk)
        assert isinstance(trunk, Whole)
        return trunk

    def model_shape(self, timeline: Timeline) -> TrainedShape:
        """Its trunk's, with what the phase has of its own."""
        own = {"corpus": self.corpus, "batch": self.batch, "context": self.context}
        changes: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
        return replace(self.whole(timeline).model_shape(timeline), **changes)

    def has_own_data(self) -> bool:
        """Whether the phase begins its data anew."""
        return any(value is not None for value in (self.corpus, self.batch, self.context))

    def seeds_in(self, timeline: Timeline) -> tuple[int, ...]:
        """Its own, or its trunk's."""
        return self.seeds or super().seeds_in(timeline)

    def ends(self, timeline: Timeline) -> tuple[int, int]:
        """From where it branches off to the end of its cooldown."""
        first = timeline.steps(self.at)
        return first, first + timeline.steps(self.cooldown)

    def measured_every(self, timeline: Timeline) -> int:
        """As the scale says for cooldowns."""
        return timeline.steps(timeline.scale.measure.cooldown_every)

    def check(self, place: str, timeline: Timeline) -> None:
        """Its trunk has a constant rate, its seeds, and a state where it branches off."""
        constant = timeline.constant_runs()
        if self.trunk not in constant:
            raise Problem(
                f"{place}.trunk is {self.trunk!r}; it must be a run with a constant learning rate: "
                f"{', '.join(constant)}"
            )
        trunk = self.whole(timeline)
        if self.at > trunk.length:
            raise Problem(
                f"{place}.at is {self.at}, after the end of its trunk {self.trunk} at "
                f"{trunk.length}; branch earlier, or make the trunk longer"
            )
        step, kept = timeline.steps(self.at), trunk.state_steps(timeline)
        if step not in kept:
            near = sorted(kept, key=lambda other: abs(other - step))[:3]
            raise Problem(
                f"{place}.at is step {step}, where its trunk {self.trunk} keeps no state to branch "
                f"from (the nearest: {near or 'none'}); change at, or state_every or state_at of "
                "the trunk"
            )
        missing = sorted({*self.seeds_in(timeline)} - {*trunk.seeds_in(timeline)})
        if missing:
            raise Problem(
                f"{place}.seeds has {missing[0]}, which its trunk {self.trunk} has not; add it "
                "there, or leave seeds out to have those of the trunk"
            )
        shape, model = self.model_shape(timeline), trunk.model_shape(timeline)
        require(f"{place}.corpus", "corpus", [shape.corpus], timeline.scale.corpora)
        if tokenized(shape, timeline) != tokenized(model, timeline):
            raise Problem(
                f"{place}.corpus is {shape.corpus!r}, whose tokenizer is not that of "
                f"{model.corpus!r}, which its trunk {self.trunk} is trained on; take a corpus with "
                "one tokenizer"
            )
        if shape.context > model.context:
            raise Problem(
                f"{place}.context is {shape.context}, longer than its model's {model.context}; "
                "lower it, or give the model more"
            )


def _kind_of_run(data: Any) -> str:
    has_trunk = "trunk" in data if isinstance(data, dict) else isinstance(data, Branch)
    return "branch" if has_trunk else "whole"


AnyRun = Annotated[
    Annotated[Whole, Tag("whole")] | Annotated[Branch, Tag("branch")], Discriminator(_kind_of_run)
]


class Runs(Strict):
    """Controlled runs and the averages of their checkpoints, by name."""

    defaults: RunDefaults
    runs: Named[AnyRun]
    averages: Named[Average]
    # Of entries that a grid made (see `grids`), the name of the grid.
    _grids: Mapping[tuple[str, str], str] = PrivateAttr(default_factory=dict)

    def model_post_init(self, context: Any) -> None:
        """Take the grids from whoever validates the file."""
        self._grids = (context or {}).get("grids", {})

    def written(self, section: str, name: str) -> str:
        """The name under which an entry stands in the file."""
        return self._grids.get((section, name), name)
