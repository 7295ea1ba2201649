"""Miniatures of public families: the runs that a scale without a hub trains in their place.

A miniature keeps the family's shares of steps and tokens and its sum of rate times weight decay.
The ratio of widths scales the peak rate. `ptq-dynamics dev regime` shows other differences."""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from pydantic import ValidationError

from ptq_dynamics.base import needs
from ptq_dynamics.base.fields import Context, Count, Rate, Share
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import problem, require
from ptq_dynamics.config.families import FILE, MODEL, Families, Later, Phase, Pretraining, Release
from ptq_dynamics.config.runs import Branch, Run, Trunk
from ptq_dynamics.config.scale import Miniatures, Scale
from ptq_dynamics.train.architectures import Architecture
from ptq_dynamics.train.objectives import AnyObjective
from ptq_dynamics.train.optimizers import AnyOptimizer
from ptq_dynamics.train.schedules import Floor


class InSmall(Run):
    """A run whose rate `used_lr`, optimizer and warmup are already those of the scale. `unknown` is
    what is uncertain of the public model."""

    used_lr: Rate
    length: Share
    warmup: Share
    optimizer: AnyOptimizer
    points: Count
    unknown: str | None


class Miniature(InSmall, Trunk):  # type: ignore[misc]
    """A miniature of a run; `peak_lr` is the family's, which may be uncertain."""

    uncertain_rate: bool


class MiniaturePhase(Branch):
    """A miniature of a phase."""

    points: Count
    cooldown_points: Count


class Stage(InSmall):
    """A stage after pre-training, as `families.Later`. `batch` is in sequences of `context` tokens.
    The stage is measured on the text of the run before."""

    after: str
    name: str
    objective: AnyObjective
    floor: Floor
    batch: Count
    context: Context
    rotary_base: Rate | None
    corpus: str | None

    def sources(self) -> Mapping[str, str]:
        """Return the run before."""
        return {needs.AFTER: self.after}


def with_miniatures(
    families: Families, scale: Scale, file: str
) -> tuple[Scale, dict[str, Run], dict[str, str]]:
    """Return the scale with miniature models, the miniatures by name, and reasons for gaps."""
    small = scale.miniatures
    assert small is not None
    require(f"{file}: miniatures.exponents", "family", small.exponents, families.families)
    require(f"{file}: models (miniatures read the text of main)", "model", ["main"], scale.models)
    models = {f"miniature of {n}": _model(families, n, scale, small) for n in families.families}
    scale = scale.model_copy(update={"models": {**scale.models, **models}})
    runs, unknown = dict[str, Run](), dict[str, str]()
    for name, run in families.runs.items():
        if isinstance(run, Release):
            unknown[name] = "a mean of checkpoints by the authors has no miniature"
        else:
            runs[name] = _Lineage(families, name, scale, small).made(name, run)
    return scale, runs, unknown


def _model(families: Families, name: str, scale: Scale, small: Miniatures) -> Architecture:
    """Return a family's miniature model, with the context and corpus of the scale's main model."""
    family, main = families.families[name], scale.models["main"]
    shape = {**family.model.model_dump(), **family.miniature}
    shape |= {"context": main.context, "corpus": main.corpus}
    try:
        model = MODEL.validate_python(shape)
        shape["layers"] = ceil(model.layers * small.deepen)
        shape["width"] = model.width * small.widen
        shape["feedforward"] = model.feedforward * small.widen
        return MODEL.validate_python(shape)
    except ValidationError as error:
        raise problem(error, shape, f"{FILE}: families.{name}.miniature") from None


class _Lineage:
    """The lineage of a run, whose longest phase ends at a scale's last step, in small."""

    def __init__(self, families: Families, member: str, scale: Scale, small: Miniatures) -> None:
        name, self.run = families.first(member)
        self.small, self.budget, self.context = small, scale.budget, scale.models["main"].context
        self.family = families.families[self.run.family]
        model = scale.models[f"miniature of {self.run.family}"]
        power = small.exponents.get(self.run.family, small.rate_exponent)
        self.ratio = float((self.family.model.width / model.width) ** power)
        phases = (run for run in families.runs.values() if isinstance(run, Phase))
        self.phases = [phase for phase in phases if phase.trunk == name]
        longest = max((phase.tokens for phase in self.phases), default=0)
        self.tokens = Fraction(self.run.tokens + longest)
        self.most = max((phase.batch for phase in self.phases), default=1)
        self.batch = max(1, scale.regime.batch // self.most)

    def steps(self, tokens: float, batch: int = 1) -> int:
        """Return the steps for tokens of the family, with a multiple of the batch."""
        steps = self.small.length * self.budget * self.most
        return max(1, round(Fraction(tokens) / self.tokens * steps / batch))

    def share(self, steps: Fraction | int) -> Fraction:
        """Return steps, at least one, as a share of the budget, above 1 if they do not fit."""
        return Fraction(max(1, round(steps)), self.budget)

    def made(self, name: str, run: Pretraining | Phase | Later) -> Run:
        """Return the miniature of a run."""
        kind: type[Run]
        match run:
            case Pretraining():
                kind, fields = Miniature, self._pretraining(run)
            case Phase():
                kind, fields = MiniaturePhase, self._phase(run)
            case Later():
                kind, fields = Stage, self._stage(run)
        try:
            return kind.model_validate(fields)
        except ValidationError as error:
            raise problem(error, fields, f"{FILE}: runs.{name}, in small") from None

    def _pretraining(self, run: Pretraining) -> dict[str, object]:
        family, small, steps = self.family, self.small, self.steps(run.tokens)
        peak = run.peak_lr or family.peak_lr
        shortened = run.tokens / family.tokens_per_step / steps
        optimizer = family.miniature_optimizer or family.optimizer
        share = small.e_folds * run.e_folds
        optimizer = optimizer.scaled(self.ratio, share * shortened / self.ratio)
        warmup = max(Fraction(family.warmup * family.tokens_per_step / run.tokens), small.warmup)
        phases = (self.steps(phase.tokens, phase.batch) for phase in self.phases)
        longest = steps + max(phases, default=0)
        schedule: dict[str, object] = {"kind": run.schedule}
        if run.schedule == "cosine":
            horizon = self.share(self.steps(run.horizon)) if run.horizon else None
            schedule |= {"horizon": horizon, "floor": run.floor}
        return {
            "family": family.label,
            "model": f"miniature of {run.family}",
            "schedule": schedule,
            "peak_lr": peak,
            "used_lr": peak * self.ratio,
            "length": self.share(steps),
            "warmup": self.share(warmup * steps),
            "batch": self.batch,
            "state_at": [self.share(steps)] if self.phases else [],
            "checkpoint_every": self.share(ceil(steps / (2 * small.measured))),
            "optimizer": optimizer.lasting(self.share(longest)),
            "points": small.measured,
            "unknown": family.uncertain,
            "uncertain_rate": family.other_peak_lr is not None,
        }

    def _phase(self, phase: Phase) -> dict[str, object]:
        small = self.small
        steady = self.steps(phase.steady, phase.batch) if phase.steady else 0
        cooldown = max(self.steps(phase.tokens, phase.batch) - steady, small.least_cooldown)
        return {
            **phase.model_dump(include={"trunk", "shape", "floor", "corpus"}),
            "at": self.share(self.steps(self.run.tokens)),
            "steady": self.share(steady) if steady else None,
            "cooldown": self.share(cooldown),
            "batch": self.batch * phase.batch if phase.batch > 1 else None,
            "checkpoint_every": self.share(ceil(cooldown / small.measured_cooldown)),
            "points": small.measured,
            "cooldown_points": small.measured_cooldown,
        }

    def _stage(self, later: Later) -> dict[str, object]:
        steps = max(1, round(self.small.stage * self.budget))
        optimizer, decay = later.optimizer or self.family.optimizer, 1.0
        if optimizer.weight_decay:
            if later.tokens is None:
                mend = "set them (weight decay needs them), or a weight decay of 0"
                raise Problem(f"{FILE}: the stage after {later.after} has no tokens; {mend}")
            shortened = later.tokens / self.family.tokens_per_step / steps
            decay = self.small.e_folds * shortened / self.ratio
        return {
            **later.model_dump(include={"after", "floor", "rotary_base", "corpus"}),
            "name": later.stage,
            "objective": later.objective,
            "length": self.share(steps),
            "warmup": self.share(Fraction(later.warmup) * steps),
            "used_lr": later.peak_lr * self.ratio,
            "batch": max(1, self.batch // later.longer),
            "context": self.context * later.longer,
            "optimizer": optimizer.scaled(self.ratio, decay),
            "points": self.small.measured_stage,
            "unknown": later.uncertain,
        }
