"""Miniatures of public families: what a scale without a hub trains in their place.

A miniature has its family's shares of steps and tokens, its sum of rate times weight decay, and a
peak rate by the ratio of the widths; what cannot be kept, as tokens per parameter, is stated
(`ptq-dynamics regime`).
"""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any, TypeVar

from pydantic import ValidationError

from ptq_dynamics.base.fields import Count, Rate
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import problem
from ptq_dynamics.config.families import (
    FILE,
    Families,
    Later,
    Phase,
    Pretraining,
    Release,
    check_length,
    first_of,
    model,
    real_model,
    trunk_of,
)
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

    def stands_for(self, timeline: Timeline) -> str | None:
        """Its family."""
        return self.family

    def uncertain(self, timeline: Timeline) -> str | None:
        """What is uncertain of its family."""
        return self.unknown

    def has_uncertain_rate(self, timeline: Timeline) -> bool:
        """Whether its family's is."""
        return self.uncertain_rate

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
) -> tuple[Scale, dict[str, Run], dict[str, str]]:
    """The scale of a file with the families' models; their runs and phases in small, by name; and
    why there are none of others.

    Raises `Problem` when the families do not fit together or to the scale.
    """
    require(
        f"{file}: miniatures.exponents",
        "family",
        _small(scale).exponents,
        families.families,
    )
    if "main" not in scale.models:
        raise Problem(
            f"{file}: models has no main, whose context and corpus the miniatures of families "
            "have; name one main, or leave miniatures out"
        )
    models = {_named(name): _small_model(families, name, scale) for name in families.families}
    found, unknown = dict[str, Run](), dict[str, str]()
    for name, run in families.runs.items():
        place = f"{FILE}: runs.{name}"
        match run:
            case Pretraining():
                found[name] = _run(families, scale, models, run, place)
            case Phase():
                found[name] = _phase(families, scale, trunk_of(families, name, run), run, place)
            case Later() if _small(scale).stage is None:
                unknown[name] = NO_STAGE
            case Later():
                first = first_of(families, name, run)
                found[name] = _stage(families, scale, models, first, run, place)
            case Release():
                unknown[name] = NO_MINIATURE
    return scale.model_copy(update={"models": {**scale.models, **models}}), found, unknown


def _named(family: str) -> str:
    """The model of a family among those of the scale, none of which is called so."""
    return f"miniature of {family}"


def _small_model(families: Families, name: str, scale: Scale) -> Architecture:
    """A family's miniature model, which reads what the scale's main model does."""
    small, family = _small(scale), families.families[name]
    main = scale.models["main"]
    place = f"{FILE}: families.{name}.miniature"
    reading = {"context": main.context, "corpus": main.corpus}
    real_model(families, name, **reading)
    require(place, "key of its model", family.miniature, family.model)
    written = {**family.model, **family.miniature, **reading}
    found = model(written, name, "miniature")
    grown = {
        "layers": ceil(found.layers * small.deepen),
        "width": found.width * small.widen,
        "feedforward": found.feedforward * small.widen,
    }
    try:
        return model({**written, **grown}, name, "miniature")
    except Problem as problem:
        raise Problem(
            f"{problem} (after miniatures.widen {small.widen} and deepen {small.deepen} of "
            f"{scale.description})"
        ) from None


def _run(
    families: Families,
    scale: Scale,
    models: Mapping[str, Architecture],
    run: Pretraining,
    place: str,
) -> Miniature:
    small, family = _small(scale), families.families[run.family]
    way = _Way(families, scale, run)
    steps = way.steps(run.tokens, 1)
    ratio = _ratio(families, scale, models, run.family)
    peak = run.peak_lr or family.peak_lr
    shortened = run.tokens / family.tokens_per_step / steps
    optimizer = family.miniature_optimizer or family.optimizer or families.defaults.optimizer
    share = max(Fraction(family.warmup * family.tokens_per_step / run.tokens), small.warmup)
    fields: dict[str, Any] = {
        "family": family.label,
        "model": _named(run.family),
        "schedule": run.schedule,
        "peak_lr": peak,
        "used_lr": peak * ratio,
        "floor": run.floor,
        "length": _share(steps, scale, f"{place}.tokens"),
        "horizon": _share(way.steps(run.horizon, 1), scale, f"{place}.horizon")
        if run.horizon
        else None,
        "warmup": _share(share * steps, scale, f"{FILE}: families.{run.family}.warmup"),
        "batch": way.batch,
        "state_at": [_share(steps, scale, place)] if way.phases else [],
        "checkpoint_every": _share(ceil(steps / (2 * small.measured)), scale, place),
        "optimizer": optimizer.scaled(ratio, small.e_folds * shortened / ratio).lasting(way.share),
        "points": small.measured,
        "unknown": family.uncertain,
        "uncertain_rate": family.other_peak_lr is not None,
    }
    return _checked(Miniature, fields, place)


def _ratio(
    families: Families, scale: Scale, models: Mapping[str, Architecture], family: str
) -> float:
    """What a miniature's rate is of the family's."""
    small, mine = _small(scale), models[_named(family)]
    theirs = real_model(families, family, context=mine.context)
    power = small.exponents.get(family, small.rate_exponent)
    found: float = (theirs.width / mine.width) ** power
    return found


def _phase(
    families: Families, scale: Scale, trunk: Pretraining, phase: Phase, place: str
) -> MiniaturePhase:
    small, way = _small(scale), _Way(families, scale, trunk)
    steady = way.steps(phase.steady, phase.batch) if phase.steady else 0
    cooldown = max(way.steps(phase.tokens, phase.batch) - steady, small.least_cooldown)
    fields: dict[str, Any] = {
        "trunk": phase.trunk,
        "at": _share(way.steps(trunk.tokens, 1), scale, f"{FILE}: runs.{phase.trunk}.tokens"),
        "steady": _share(steady, scale, f"{place}.steady") if steady else None,
        "cooldown": _share(cooldown, scale, f"{place}.tokens"),
        "shape": phase.shape,
        "floor": phase.floor,
        "corpus": phase.corpus,
        "batch": way.batch * phase.batch if phase.batch > 1 else None,
        "checkpoint_every": _share(ceil(cooldown / small.measured_cooldown), scale, place),
        "points": small.measured,
        "cooldown_points": small.measured_cooldown,
    }
    return _checked(MiniaturePhase, fields, place)


def _stage(
    families: Families,
    scale: Scale,
    models: Mapping[str, Architecture],
    first: Pretraining,
    later: Later,
    place: str,
) -> Stage:
    small, family = _small(scale), families.families[first.family]
    check_length(place, later, family)
    assert small.stage is not None
    model, steps = models[_named(first.family)], max(1, round(small.stage * scale.budget))
    ratio = _ratio(families, scale, models, first.family)
    optimizer = later.optimizer or family.optimizer or families.defaults.optimizer
    decays = optimizer.per_step(1.0, 1.0) > 0
    if decays and later.tokens is None:
        raise Problem(
            f"{place}.tokens is missing, and its optimizer has weight decay, which goes by them; "
            "name one of both"
        )
    shortened = (later.tokens or 0) / family.tokens_per_step / steps
    fields: dict[str, Any] = {
        "after": later.after,
        "name": later.stage,
        "objective": later.objective,
        "length": _share(steps, scale, f"{place}, miniatures.stage"),
        "warmup": _share(Fraction(later.warmup) * steps, scale, f"{place}.warmup"),
        "used_lr": later.peak_lr * ratio,
        "floor": later.floor,
        "batch": max(1, _Way(families, scale, first).batch // later.longer),
        "context": model.context * later.longer,
        "rotary_base": later.rotary_base,
        "corpus": later.corpus,
        "optimizer": optimizer.scaled(ratio, small.e_folds * shortened / ratio if decays else 1.0),
        "points": small.measured_stage,
        "unknown": later.uncertain,
    }
    return _checked(Stage, fields, place)


AnyMiniature = TypeVar("AnyMiniature", Miniature, MiniaturePhase, Stage)


def _checked(kind: type[AnyMiniature], fields: dict[str, Any], place: str) -> AnyMiniature:
    try:
        return kind(**fields)
    except ValidationError as error:
        raise problem(error, fields, f"{place}, in small", {}) from None


class _Way:
    """A run of a family with its longest phase, which a scale's steps stand for."""

    def __init__(self, families: Families, scale: Scale, run: Pretraining) -> None:
        named = {id(each): name for name, each in families.runs.items()}
        every = (each for each in families.runs.values() if isinstance(each, Phase))
        self.phases = [each for each in every if each.trunk == named[id(run)]]
        self._tokens = run.tokens + max((phase.tokens for phase in self.phases), default=0)
        self._steps = _small(scale).length * scale.budget
        self._most = max((phase.batch for phase in self.phases), default=1)
        self.batch = max(1, scale.regime.batch // self._most)
        self._run, self._scale = run, scale
        self._place = f"{FILE}: runs.{named[id(run)]} with its longest phase"

    @property
    def share(self) -> Fraction:
        """All of it, as a share of the scale's budget."""
        longest = max((self.steps(phase.tokens, phase.batch) for phase in self.phases), default=0)
        return _share(self.steps(self._run.tokens, 1) + longest, self._scale, self._place)

    def steps(self, tokens: float, batch: int) -> int:
        """Steps that so many tokens of the family are here, with so many times its batch."""
        share = Fraction(tokens) / Fraction(self._tokens)
        return max(1, round(share * self._steps * self._most / batch))


def _small(scale: Scale) -> Miniatures:
    assert scale.miniatures is not None
    return scale.miniatures


def _share(steps: Fraction | int, scale: Scale, place: str) -> Fraction:
    """So many steps, one at least, as a share of the scale's budget; `Problem` where they are more,
    which names the `place` of what takes them."""
    taken = max(1, round(steps))
    if taken > scale.budget:
        raise Problem(
            f"{place} takes {taken} steps in small, and {scale.description} has a budget of "
            f"{scale.budget}; lower it, or miniatures.length of the scale"
        )
    return Fraction(taken, scale.budget)
