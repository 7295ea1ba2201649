"""Planned trajectories: shapes, checkpoints and seeds, with all times in whole steps; and averages
of checkpoints of others."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from ptq_dynamics.base.fields import Share
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.runs import Run, RunDefaults
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.train.architectures import Architecture
from ptq_dynamics.trajectories.averages import Average, Mean, OfOne, SourcePoints
from ptq_dynamics.trajectories.trajectory import Checkpoint, Point


@dataclass(frozen=True)
class TrainedShape:
    """A model, its corpus and its batches (in sequences of `context` tokens)."""

    model: Architecture
    corpus: str
    context: int
    micro_batch: int | None
    batch: int

    @property
    def batch_tokens(self) -> int:
        """Tokens of one batch."""
        return self.batch * self.context

    def with_batch(self, factor: Fraction, place: str) -> "TrainedShape":
        """Return the shape with a multiple of its batch; raises `Problem` if it is not whole."""
        batch = self.batch * factor
        if batch.denominator > 1:
            why = f"makes {float(batch):g} sequences of a batch of {self.batch}"
            raise Problem(f"{place}.batch_factor is {factor}, which {why}; change one of the two")
        return replace(self, batch=int(batch))


@dataclass(frozen=True)
class Origin:
    """The family of a trajectory in tables, and its public model: what is `uncertain`, whether the
    learning rate is, and the model that a miniature `stands_for`."""

    family: str
    uncertain: str | None = None
    is_rate_uncertain: bool = False
    stands_for: str | None = None


@dataclass(frozen=True)
class Basis:
    """What all trajectories of a plan share: the scale, defaults of runs, the chosen seeds."""

    scale: Scale
    defaults: RunDefaults
    seeds: tuple[int, ...]

    def steps(self, share: Share) -> int:
        """Return a share of the budget in whole steps, at least one."""
        return max(1, round(share * self.scale.budget))

    def spacing(self, run: Run) -> int:
        """Return the steps between checkpoints of a run."""
        return self.steps(run.checkpoint_every or self.defaults.checkpoint_every)

    def shape(self, name: str) -> TrainedShape:
        """Return the shape of a model of the scale, as runs from fresh weights train it."""
        model, batch = self.scale.models[name], self.scale.regime.batch
        return TrainedShape(model, model.corpus, model.context, model.micro_batch, batch)


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedTrajectory(ABC):
    """A trajectory with its source trajectories by label. `shape` is that in
    measurements. With `has_own_seeds`, the run or its trunk names its seeds. A branch has the name
    of the run that its curve continues, and the step at which it begins (`branched`). `averaged`
    are ids of checkpoints that the authors averaged, if they are known."""

    name: str
    basis: Basis
    sources: Mapping[str, "PlannedTrajectory"] = field(default_factory=dict)
    shape: TrainedShape
    origin: Origin
    seeds: tuple[int, ...]
    has_own_seeds: bool = False
    branched: tuple[str, int] | None = None
    averaged: tuple[str, ...] = ()

    @cached_property
    @abstractmethod
    def checkpoints(self) -> list[Point]:
        """All checkpoints in order."""

    @cached_property
    def measured(self) -> list[Point]:
        """The checkpoints that are measured."""
        return self.checkpoints

    @cached_property
    def shards(self) -> dict[str, list[Point]]:
        """The measured checkpoints by shard; a shard is one job."""
        points, size = self.measured, self.basis.scale.shard
        if size is None:
            return {"all": points}
        parts = [points[start : start + size] for start in range(0, len(points), size)]
        return {part[0].id: part for part in parts}

    @cached_property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        vocabulary = self.basis.scale.base_corpus(self.shape.corpus).vocabulary
        return self.shape.model.parameters(vocabulary)

    @property
    def form(self) -> tuple[object, ...]:
        """A key that is equal for trajectories whose checkpoints can be averaged."""
        shape = self.shape
        return shape.model.weights, self.basis.scale.base_corpus(shape.corpus).tokenized

    @property
    def planned_checkpoints(self) -> tuple[Checkpoint, ...]:
        """Its checkpoints, where tokens, rates and phases are no part of what is measured."""
        return ()

    @property
    def followed(self) -> "PlannedTrajectory":
        """The run or public model whose learning rate it follows."""
        return self

    def seeds_shown(self, headline: bool | int) -> tuple[int, ...]:
        """Return the first seed, or so many; all if True, and for runs with own seeds."""
        return self.seeds if headline is True or self.has_own_seeds else self.seeds[: headline or 1]

    def check(self, place: str) -> None:  # noqa: B027 (most kinds need no check)
        """Raise `Problem` if it cannot be built; `place` is its key in the configuration."""


def common_seeds(sources: Mapping[str, PlannedTrajectory]) -> tuple[int, ...]:
    """Return the seeds that all sources have."""
    first, *others = [source.seeds for source in sources.values()]
    return tuple(seed for seed in first if all(seed in seeds for seeds in others))


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
