"""Miniatures of public families: what a scale without a hub trains in their place.

A miniature has its family's shares of steps and tokens, its sum of rate times weight decay, and a
peak rate by the ratio of the widths; what cannot be kept, as tokens per parameter, is stated
(`ptq-dynamics regime`).
"""

from fractions import Fraction
from math import ceil
from typing import Any

from pydantic import ValidationError

from ptq_dynamics.base.fields import Count, Rate
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import problem
from ptq_dynamics.config.families import FILE, Families, Family, Later, Phase, Pretraining, Release
from ptq_dynamics.config.names import require
from ptq_dynamics.config.runs import Branch, Run, Whole
from ptq_dynamics.config.scale import Miniatures, Scale
from ptq_dynamics.config.stages import Stage
from ptq_dynamics.train.architectures import Architecture
from ptq_dynamics.train.optimizers import AnyOptimizer
from ptq_dynamics.train.timeline import Point, Timeline

NO_STAGE = "miniatures of the scale has no stage, the steps of what comes after pre-training"
NO_MINIATURE = "no miniature stands for what authors made of several checkpoints"


class Miniature(Whole):
    """A run of a family in small; `used_lr` is the peak rate here, `peak_lr` the family's;
    `unknown` is what is uncertain of that, and whether its rate is."""

    used_lr: Rate
    points: Count
    unknown: str | None
    uncertain_rate: bool

    def peak(self, timeline: Timeline) -> float:
        """Its peak learning rate at this scale."""
        return self.used_lr

    def optimizer_in(self, timeline: Timeline) -> AnyOptimizer:
        """Its own, which is this scale's already."""
        return self.papers_optimizer(timeline)

    def warmup_steps(self, timeline: Timeline) -> int:
        """Steps of its warmup."""
        return timeline.steps(self.warmup)

    def measured_every(self, timeline: Timeline) -> int:
        """So that there are as many as the scale says."""
        return max(1, timeline.steps(self.length) // self.points)


class MiniaturePhase(Branch):
    """A phase of a family in small."""

    points: Count
    cooldown_points: Count

    def measured_every(self, timeline: Timeline) -> int:
        """So that there are as many of its cooldown as the scale says."""
        return max(1, timeline.steps(self.cooldown) // self.cooldown_points)

    def measured(self, timeline: Timeline) -> list[Point]:
        """Those of its cooldown, and as many as of a run on the way there."""
        found = super().measured(timeline)
        (first, _), start = self.ends(timeline), self.cooldown_start(timeline)
        every = max(1, (start - first) // self.points)
        known = self.checkpoints(timeline)
        late = {point for point in found if (point.step or 0) >= start}
        early = {
            min(known, key=lambda point: abs((point.step or 0) - at))
            for at in range(first, start, every)
        }
        return sorted({known[0], *early, *late}, key=lambda point: point.step or 0)


def settle(
    families: Families, scale: Scale, file: str
) -> tuple[Scale, dict[str, Run], dict[str, Any], dict[str, str]]:
    """The scale of a file with the families' models; their runs and phases in small, by name; no
    public models; and why there are no miniatures of others.

    Raises `Problem` when the families do not fit to the scale.
    """
    assert scale.miniatures is not None
    exponents = scale.miniatures.exponents
    require(f"{file}: miniatures.exponents", "family", exponents, families.families)
    require(f"{file}: models, of which miniatures take the text,", "model", ["main"], scale.models)
    made = _Made(families, scale, scale.miniatures)
    found, unknown = dict[str, Run](), dict[str, str]()
    for name, run in families.runs.items():
        if isinstance(run, Release):
            unknown[name] = NO_MINIATURE
        elif isinstance(run, Later) and scale.miniatures.stage is None:
            unknown[name] = NO_STAGE
        else:
            found[name] = made.run(name)
    models = {f"miniature of {name}": model for name, model in made.models.items()}
    scale = scale.model_copy(update={"models": {**scale.models, **models}})
    return scale, found, {}, unknown


class _Made:
    """What a scale makes of families: models by family, and runs."""

    def __init__(self, families: Families, scale: Scale, small: Miniatures) -> None:
        self.families, self.scale, self.small = families, scale, small
        self.models = {name: self._model(name) for name in families.families}

    def run(self, name: str) -> Run:
        """A run of a family in small."""
        run: Any = self.families.runs[name]
        kinds: dict[Any, Any] = {
            Pretraining: (Miniature, self._pretraining),
            Phase: (MiniaturePhase, self._phase),
            Later: (Stage, self._stage),
        }
        kind, make = kinds[type(run)]
        trunk, first = self.families.first(name)
        fields = make(run, self.families.families[first.family], first.family, trunk)
        try:
            return kind(**fields)
        except ValidationError as error:
            raise problem(error, fields, f"{FILE}: runs.{name}, in small") from None

    def _model(self, name: str) -> Architecture:
        """A family's miniature model, which reads what the scale's main model does."""
        family, main = self.families.families[name], self.scale.models["main"]
        reading: dict[str, Any] = {"context": main.context, "corpus": main.corpus}
        self.families.model(name, **reading)
        place = f"{FILE}: families.{name}.miniature"
        require(place, "key of its model", family.miniature, family.model)
        changed = {**family.miniature, **reading}
        found = self.families.model(name, "miniature", **changed)
        changed["layers"] = ceil(found.layers * self.small.deepen)
        changed["width"] = found.width * self.small.widen
        changed["feedforward"] = found.feedforward * self.small.widen
        return self.families.model(name, "miniature", **changed)

    def _pretraining(self, run: Pretraining, family: Family, of: str, name: str) -> dict[str, Any]:
        small, way, ratio = self.small, _Way(self, name), self._ratio(of)
        steps, peak = way.steps(run.tokens), run.peak_lr or family.peak_lr
        shortened = run.tokens / family.tokens_per_step / steps
        optimizer = family.miniature_optimizer or self.families.optimizer(family)
        optimizer = optimizer.scaled(ratio, small.e_folds * shortened / ratio)
        warmup = max(Fraction(family.warmup * family.tokens_per_step / run.tokens), small.warmup)
        return {
            "family": family.label,
            "model": f"miniature of {of}",
            "schedule": run.schedule,
            "peak_lr": peak,
            "used_lr": peak * ratio,
            "floor": run.floor,
            "length": self.share(steps),
            "horizon": self.share(way.steps(run.horizon)) if run.horizon else None,
            "warmup": self.share(warmup * steps),
            "batch": way.batch,
            "state_at": [self.share(steps)] if way.phases else [],
            "checkpoint_every": self.share(ceil(steps / (2 * small.measured))),
            "optimizer": optimizer.lasting(self.share(way.longest)),
            "points": small.measured,
            "unknown": family.uncertain,
            "uncertain_rate": family.other_peak_lr is not None,
        }

    def _phase(self, phase: Phase, family: Family, of: str, name: str) -> dict[str, Any]:
        small, way = self.small, _Way(self, name)
        steady = way.steps(phase.steady, phase.batch) if phase.steady else 0
        cooldown = max(way.steps(phase.tokens, phase.batch) - steady, small.least_cooldown)
        return {
            "trunk": phase.trunk,
            "at": self.share(way.steps(way.run.tokens)),
            "steady": self.share(steady) if steady else None,
            "cooldown": self.share(cooldown),
            "shape": phase.shape,
            "floor": phase.floor,
            "corpus": phase.corpus,
            "batch": way.batch * phase.batch if phase.batch > 1 else None,
            "checkpoint_every": self.share(ceil(cooldown / small.measured_cooldown)),
            "points": small.measured,
            "cooldown_points": small.measured_cooldown,
        }

    def _stage(self, later: Later, family: Family, of: str, name: str) -> dict[str, Any]:
        small, model, ratio = self.small, self.models[of], self._ratio(of)
        steps = round((small.stage or 0) * self.scale.budget)
        optimizer = later.optimizer or self.families.optimizer(family)
        decays = optimizer.per_step(1.0, 1.0) > 0
        if decays and later.tokens is None:
            raise Problem(
                f"{FILE}: what comes after {later.after} has no tokens, and its optimizer has "
                "weight decay, which goes by them; name one of both"
            )
        shortened = (later.tokens or 0) / family.tokens_per_step / max(1, steps)
        decay = small.e_folds * shortened / ratio if decays else 1.0
        return {
            "after": later.after,
            "name": later.stage,
            "objective": later.objective,
            "length": self.share(steps),
            "warmup": self.share(Fraction(later.warmup) * max(1, steps)),
            "used_lr": later.peak_lr * ratio,
            "floor": later.floor,
            "batch": max(1, _Way(self, name).batch // later.longer),
            "context": model.context * later.longer,
            "rotary_base": later.rotary_base,
            "corpus": later.corpus,
            "optimizer": optimizer.scaled(ratio, decay),
            "points": small.measured_stage,
            "unknown": later.uncertain,
        }

    def _ratio(self, family: str) -> float:
        """What a miniature's rate is of the family's."""
        mine = self.models[family]
        theirs = self.families.model(family, context=mine.context)
        power = self.small.exponents.get(family, self.small.rate_exponent)
        return float((theirs.width / mine.width) ** power)

    def share(self, steps: Fraction | int) -> Fraction:
        """So many steps, one at least, as a share of the scale's budget; above 1 where they do not
        fit, which the types of runs refuse."""
        return Fraction(max(1, round(steps)), self.scale.budget)


class _Way:
    """A run of a family with its longest phase, which a scale's steps stand for."""

    def __init__(self, made: _Made, name: str) -> None:
        every = (each for each in made.families.runs.values() if isinstance(each, Phase))
        self.phases = [each for each in every if each.trunk == name]
        _, self.run = made.families.first(name)
        longest = max((phase.tokens for phase in self.phases), default=0)
        self._tokens = Fraction(self.run.tokens + longest)
        most = max((phase.batch for phase in self.phases), default=1)
        self.batch = max(1, made.scale.regime.batch // most)
        self._steps = made.small.length * made.scale.budget * most

    def steps(self, tokens: float, batch: int = 1) -> int:
        """Steps that so many tokens of the family are here, with so many times its batch."""
        return max(1, round(Fraction(tokens) / self._tokens * self._steps / batch))

    @property
    def longest(self) -> int:
        """Steps of all of it."""
        phases = (self.steps(phase.tokens, phase.batch) for phase in self.phases)
        return self.steps(self.run.tokens) + max(phases, default=0)
