"""Miniatures of public families: the runs that a scale without a hub trains in their place.

A miniature keeps the family's shares of steps and tokens and its sum of rate times weight decay.
The ratio of widths scales the peak rate. `ptq-dynamics dev regime` shows other differences."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil

from pydantic import TypeAdapter

from ptq_dynamics.base import needs
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import require, validated
from ptq_dynamics.config.families import FILE, MODEL, Families, Later, Phase, Pretraining, Release
from ptq_dynamics.config.runs import Branch, Trunk
from ptq_dynamics.config.scale import Miniatures, Scale
from ptq_dynamics.plan.planned import Basis, Origin, PlannedTrajectory, TrainedShape, common_seeds
from ptq_dynamics.plan.planned_runs import (
    PlannedBranch,
    PlannedRun,
    PlannedTrunk,
    plan_branch,
    plan_trunk,
)
from ptq_dynamics.train.architectures import Architecture
from ptq_dynamics.train.schedules import Span
from ptq_dynamics.train.schedules.stage import StageSchedule
from ptq_dynamics.trajectories.trajectory import Point, step_id


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedStage(PlannedRun):
    """A stage after pre-training, from the weights alone of the run before."""

    @cached_property
    def checkpoints(self) -> list[Point]:
        """Checkpoints at regular steps and at the end, but not at the beginning."""
        last, every = self.last, self.spacing
        steps = sorted({*range(self.first + every, last, every), last})
        return [Point(step_id(step), step) for step in steps]


def with_miniatures(
    families: Families, scale: Scale, file: str
) -> tuple[Scale, dict[str, "Miniature"], dict[str, str]]:
    """Return the scale with miniature models, the miniatures by name, and reasons for gaps."""
    small = scale.miniatures
    assert small is not None
    require(f"{file}: miniatures.exponents", "family", small.exponents, families.families)
    require(f"{file}: models (miniatures read the text of main)", "model", ["main"], scale.models)
    models = {f"miniature of {n}": _model(families, n, scale, small) for n in families.families}
    scale = scale.model_copy(update={"models": {**scale.models, **models}})
    runs, unknown = dict[str, Miniature](), dict[str, str]()
    for name, run in families.runs.items():
        if isinstance(run, Release):
            unknown[name] = "a mean of checkpoints by the authors has no miniature"
        else:
            runs[name] = Miniature(families, name, scale, small)
    return scale, runs, unknown


def _model(families: Families, name: str, scale: Scale, small: Miniatures) -> Architecture:
    """Return a family's miniature model, with the context and corpus of the scale's main model."""
    family, main = families.families[name], scale.models["main"]
    shape = {**family.model.model_dump(), **family.miniature}
    shape |= {"context": main.context, "corpus": main.corpus}
    place = f"{FILE}: families.{name}.miniature"
    model = validated(MODEL, shape, place)
    shape["layers"] = ceil(model.layers * small.deepen)
    shape["width"] = model.width * small.widen
    shape["feedforward"] = model.feedforward * small.widen
    return validated(MODEL, shape, place)


class Miniature:
    """A public run at a scale, whose last step is the end of the longest phase of its lineage."""

    def __init__(self, families: Families, name: str, scale: Scale, small: Miniatures) -> None:
        first, pretraining = families.first(name)
        self.run, self.pretraining = families.runs[name], pretraining
        self.scale, self.small = scale, small
        self.family = families.families[pretraining.family]
        self.model = f"miniature of {pretraining.family}"
        power = small.exponents.get(pretraining.family, small.rate_exponent)
        # Of the rates to those of the family.
        self.ratio = float((self.family.model.width / scale.models[self.model].width) ** power)
        runs = families.runs.values()
        self.phases = [one for one in runs if isinstance(one, Phase) and one.trunk == first]
        longest = max((phase.tokens for phase in self.phases), default=0)
        self.tokens = Fraction(pretraining.tokens + longest)
        self.most = max((phase.batch for phase in self.phases), default=1)
        self.batch = max(1, scale.regime.batch // self.most)

    def sources(self) -> Mapping[str, str]:
        """Return the run that it continues, by label."""
        match self.run:
            case Phase(trunk=trunk):
                return {needs.TRUNK: trunk}
            case Later(after=before):
                return {needs.AFTER: before}
        return {}

    def planned(
        self, name: str, basis: Basis, sources: Mapping[str, PlannedTrajectory]
    ) -> PlannedRun:
        """Return the planned run; raises `Problem` if its numbers do not fit."""
        match self.run:
            case Pretraining() as run:
                return self._trunk(name, basis, run)
            case Phase() as run:
                return self._phase(name, run, sources)
            case Later() as run:
                return self._stage(name, run, sources)
        raise TypeError(f"{name} has no miniature")

    def _steps(self, tokens: float, batch: int = 1) -> int:
        """Return the steps for tokens of the family, with a multiple of the batch."""
        steps = self.small.length * self.scale.budget * self.most
        return max(1, round(Fraction(tokens) / self.tokens * steps / batch))

    def _share(self, steps: int) -> Fraction:
        return Fraction(steps, self.scale.budget)

    def _trunk(self, name: str, basis: Basis, run: Pretraining) -> PlannedTrunk:
        family, small, steps = self.family, self.small, self._steps(run.tokens)
        peak = run.peak_lr or family.peak_lr
        shortened = run.tokens / family.tokens_per_step / steps
        optimizer = family.miniature_optimizer or family.optimizer
        optimizer = optimizer.scaled(
            self.ratio, small.e_folds * run.e_folds * shortened / self.ratio
        )
        longest = max((self._steps(one.tokens, one.batch) for one in self.phases), default=0)
        optimizer = optimizer.lasting(self._share(steps + longest))
        schedule: dict[str, object] = {"kind": run.schedule}
        if run.schedule == "cosine":
            horizon = self._share(self._steps(run.horizon)) if run.horizon else None
            schedule |= {"horizon": horizon, "floor": run.floor}
        fields = {
            "model": self.model,
            "schedule": schedule,
            "peak_lr": peak,
            "length": self._share(steps),
            "batch_factor": Fraction(self.batch, self.scale.regime.batch),
            "state_at": [self._share(steps)] if self.phases else [],
            "checkpoint_every": self._share(ceil(steps / (2 * small.measured))),
            "optimizer": optimizer,
        }
        entry = validated(TypeAdapter(Trunk), fields, f"{FILE}: runs.{name}, in small")
        warmup = max(Fraction(family.warmup * family.tokens_per_step / run.tokens), small.warmup)
        span = Span(peak * self.ratio, max(1, round(warmup * steps)), steps)
        uncertain_rate = family.other_peak_lr is not None
        return replace(
            plan_trunk(name, basis, entry),
            origin=Origin(family.label, family.uncertain, uncertain_rate, family.label),
            optimizer=optimizer,
            schedule=entry.schedule.in_steps(span, basis.steps),
            measured_every=max(1, steps // small.measured),
        )

    def _phase(
        self, name: str, run: Phase, sources: Mapping[str, PlannedTrajectory]
    ) -> PlannedBranch:
        small, steady = self.small, self._steps(run.steady, run.batch) if run.steady else 0
        cooldown = max(self._steps(run.tokens, run.batch) - steady, small.least_cooldown)
        fields = {
            **run.model_dump(include={"trunk", "shape", "floor", "corpus"}),
            "at": self._share(self._steps(self.pretraining.tokens)),
            "steady": self._share(steady) if steady else None,
            "cooldown": self._share(cooldown),
            "batch_factor": run.batch,
            "checkpoint_every": self._share(ceil(cooldown / small.measured_cooldown)),
        }
        entry = validated(TypeAdapter(Branch), fields, f"{FILE}: runs.{name}, in small")
        return replace(
            plan_branch(name, entry, sources),
            steady_points=small.measured,
            measured_every=max(1, cooldown // small.measured_cooldown),
        )

    def _stage(
        self, name: str, run: Later, sources: Mapping[str, PlannedTrajectory]
    ) -> PlannedStage:
        before = sources[needs.AFTER]
        assert isinstance(before, PlannedRun)
        basis, origin, model = before.basis, before.trunk.origin, before.trained.model
        first, length = before.last, max(1, round(self.small.stage * self.scale.budget))
        optimizer, decay = run.optimizer or self.family.optimizer, 1.0
        if optimizer.weight_decay:
            if run.tokens is None:
                mend = "set them (weight decay needs them), or a weight decay of 0"
                raise Problem(f"{FILE}: the stage after {run.after} has no tokens; {mend}")
            shortened = run.tokens / self.family.tokens_per_step / length
            decay = self.small.e_folds * shortened / self.ratio
        if run.rotary_base is not None:
            model = model.model_copy(update={"rotary_base": run.rotary_base})
        corpus, batch = run.corpus or before.trunk.shape.corpus, max(1, self.batch // run.longer)
        context = self.scale.models["main"].context * run.longer
        uncertain = "; ".join(filter(None, (run.uncertain, origin.uncertain))) or None
        peak, interval = run.peak_lr * self.ratio, max(1, length // self.small.measured_stage)
        return PlannedStage(
            name=name,
            basis=basis,
            sources=sources,
            before=before,
            shape=before.shape,
            trained=TrainedShape(model, corpus, context, None, batch),
            origin=replace(origin, uncertain=uncertain),
            seeds=common_seeds(sources),
            has_own_seeds=before.has_own_seeds,
            objective=run.objective,
            optimizer=optimizer.scaled(self.ratio, decay),
            schedule=StageSchedule(
                kind="stage",
                peak=peak,
                warmup=max(1, round(Fraction(run.warmup) * length)),
                floor=run.floor * peak,
                start=first,
                length=length,
                name=run.stage,
            ),
            first=first,
            last=first + length,
            data_first=first,
            spacing=interval,
            measured_every=interval,
        )
