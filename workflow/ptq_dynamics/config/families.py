"""Types of config/families.yaml: public families, their runs, and what is made of these.

Lengths are tokens of the real runs. What scales make of them is in `miniatures` and `public`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from ptq_dynamics.base.fields import Count, Once, Rate, Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import problem
from ptq_dynamics.config.names import Name, Named
from ptq_dynamics.config.public import DeviceMap, Dtype
from ptq_dynamics.config.runs import CooldownShape
from ptq_dynamics.hub.files import COMMIT
from ptq_dynamics.train.architectures import AnyArchitecture, Architecture
from ptq_dynamics.train.averages import AnyAverage
from ptq_dynamics.train.objectives import AnyObjective
from ptq_dynamics.train.objectives.language import Language
from ptq_dynamics.train.optimizers import AnyOptimizer

FILE = "config/families.yaml"
# They become folders.
Revisions = Annotated[tuple[Name, ...], Once]


def _one_group(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from None
    if groups != 1:
        raise ValueError(f"has {groups} groups, and must have one, around the step")
    return pattern


# The hub's own rule, https://huggingface.co/docs/huggingface_hub: of an owner and a name.
REPOSITORY = re.compile(r"(?!.*(--|\.\.|\.git$))(\w([\w.-]*\w)?/)?\w([\w.-]{0,94}\w)?", re.ASCII)


def _is_repository(name: str) -> str:
    if not REPOSITORY.fullmatch(name):
        raise ValueError("must be OWNER/NAME as https://huggingface.co/OWNER/NAME has them")
    return name


def _is_commit(name: str) -> str:
    if not COMMIT.fullmatch(name):
        raise ValueError("must be a full commit id, 40 hexadecimal digits")
    return name


def _are_its_own(averaged: Revisions, revisions: Revisions) -> None:
    if averaged != tuple(name for name in revisions if name in averaged):
        raise ValueError("averaged must be some of the revisions, in their order")


Floor = Annotated[float, Field(ge=0, le=1)]
Tokens = Annotated[float, Field(ge=1, le=1e18)]


class FamilyDefaults(Strict):
    """What families share unless they say otherwise."""

    optimizer: AnyOptimizer


class Family(Strict):
    """What is known of a family: what figures call it, tokens of a step, peak learning rate (where
    publications give another one too, that as `other_peak_lr`, and figures mark the rate), steps of
    the warmup, model, optimizer, and what is `uncertain` of it; and what its `miniature` changes
    of the model, at the widths that a scale multiplies, with an optimizer of its own where the
    family's makes no sense for so few steps. Its checkpoints are revisions of a `repository`, in
    whose names `step_in` finds the step, in `steps_each`; `convert` where weights are pickles;
    `reads_as` names another family with the same tokenizer; weights have the type `dtype`, by
    which downloads are estimated, and a `format` of their own where transformers does not read
    them; those that fit on no device are spread by accelerate as `device_map` says: over several,
    then memory, then the disk. `code` is the commit of the repository's own code, which then runs;
    those that are `unreadable`, and why, are not fetched."""

    label: Annotated[str, Field(min_length=1)]
    repository: Annotated[str, AfterValidator(_is_repository)] | None = None
    reads_as: str | None = None
    unreadable: str | None = None
    code: Annotated[str, AfterValidator(_is_commit)] | None = None
    step_in: Annotated[str, AfterValidator(_one_group)] = r"(\d+)"
    steps_each: Count = 1
    convert: bool = False
    format: Literal["olmo"] | None = None
    dtype: Dtype = "bfloat16"
    device_map: DeviceMap = "auto"
    vocabulary: Count
    tokens_per_step: Tokens
    peak_lr: Rate
    other_peak_lr: Rate | None = None
    warmup: Count
    model: dict[str, Any]
    optimizer: AnyOptimizer | None = None
    miniature: dict[str, Any]
    miniature_optimizer: AnyOptimizer | None = None
    uncertain: str | None = None

    @property
    def tokenized(self) -> int | None:
        """How many words the tokenizer of its own has, if it has one."""
        return self.vocabulary if self.repository and not self.reads_as else None

    @model_validator(mode="after")
    def _has_code_for_a_reason(self) -> Self:
        if self.code is not None and self.repository is None:
            raise ValueError("code goes with a repository")
        if self.code is not None and self.unreadable is not None:
            raise ValueError("what has code is not unreadable; leave one out")
        return self


class Pretraining(Strict):
    """A run of a family from fresh weights over so many `tokens`, at the family's peak rate unless
    it has one of its own. A cosine ends at its `horizon`, beyond the run where it is cut short, at
    the share `floor` of the peak. Averages of its last checkpoints take the last of its revisions,
    or those of them that its authors `averaged`."""

    family: str
    schedule: Literal["constant", "cosine"]
    tokens: Tokens
    horizon: Tokens | None = None
    floor: Floor = 0.0
    peak_lr: Rate | None = None
    revisions: Revisions = ()
    averaged: Revisions = ()

    @model_validator(mode="after")
    def _has_a_schedule(self) -> Self:
        if self.schedule == "constant" and (self.horizon or self.floor):
            raise ValueError("horizon and floor go with schedule cosine")
        if self.horizon is not None and self.horizon < self.tokens:
            raise ValueError(f"horizon {self.horizon:g} comes before the end at {self.tokens:g}")
        _are_its_own(self.averaged, self.revisions)
        return self


class Phase(Strict):
    """What goes on from the end of a run over so many `tokens`: `steady` ones at its rate, then
    down to the share `floor` of the trunk's peak; on other text, with a `batch` so many times as
    large, where that is said. The steps of its revisions go on from the trunk's, or it `restarts`;
    some of them may be `averaged`, as those of a run."""

    trunk: str
    tokens: Tokens
    steady: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    shape: CooldownShape = "linear"
    floor: Floor = 0.0
    corpus: str | None = None
    batch: Count = 1
    restarts: bool = False
    revisions: Revisions = ()
    averaged: Revisions = ()

    @model_validator(mode="after")
    def _has_a_cooldown(self) -> Self:
        if self.steady >= self.tokens:
            raise ValueError(f"steady {self.steady:g} leaves nothing of tokens {self.tokens:g}")
        _are_its_own(self.averaged, self.revisions)
        return self


class Later(Strict):
    """A stage that comes `after` a run with nothing but its weights, called `stage` in tables: over
    so many `tokens`, where they are known, a warmup over a share of them to `peak_lr`, then half a
    cosine to the share `floor` of that, towards an `objective`, on sequences `longer` so many times
    than in pre-training, with a base of the rotary embedding and an optimizer of its own where they
    are said. The steps of its revisions begin anew; they may have none."""

    after: str
    stage: Annotated[str, Field(min_length=1)]
    objective: AnyObjective = Language()
    tokens: Tokens | None = None
    peak_lr: Rate
    warmup: Floor = 0.0
    floor: Floor = 0.0
    longer: Annotated[int, Field(ge=1, le=256)] = 1
    rotary_base: Rate | None = None
    corpus: str | None = None
    optimizer: AnyOptimizer | None = None
    uncertain: str | None = None
    revisions: Revisions = ()


class Release(Strict):
    """Revisions of a family's repository, or of another one, that stand at no step of a run, as the
    mean of several that its authors made. No miniature stands for them."""

    release_of: str
    repository: Annotated[str, AfterValidator(_is_repository)] | None = None
    revisions: Annotated[Revisions, Field(min_length=1)]


# What stands in an entry of each kind and in no other.
KEYS = {"trunk": "phase", "release_of": "release", "after": "later"}
TAGS: dict[type, str] = {Phase: "phase", Release: "release", Later: "later"}


def _kind(data: Any) -> str:
    if isinstance(data, dict):
        return next((kind for key, kind in KEYS.items() if key in data), "pretraining")
    return TAGS.get(type(data), "pretraining")


Stretch = Annotated[
    Annotated[Pretraining, Tag("pretraining")]
    | Annotated[Phase, Tag("phase")]
    | Annotated[Later, Tag("later")]
    | Annotated[Release, Tag("release")],
    Discriminator(_kind),
]


class Families(Strict):
    """Families, their runs, and averages of their checkpoints, by name."""

    defaults: FamilyDefaults
    families: Named[Family]
    runs: Named[Stretch]
    averages: Named[AnyAverage]

    @model_validator(mode="after")
    def _has_families(self) -> Self:
        for name, family in self.families.items():
            other = self.families.get(family.reads_as or "")
            if family.reads_as and not (other and other.tokenized == family.vocabulary):
                raise ValueError(
                    f"families.{name}.reads_as is {family.reads_as!r}, and must be a family with "
                    "a repository, a tokenizer of its own and the same vocabulary"
                )
            architecture = family.model.get("architecture")
            if family.format is not None and family.format != architecture:
                raise ValueError(
                    f"families.{name}.format is {family.format!r}, and its architecture "
                    f"{architecture!r}; leave it out, or correct one"
                )
        for name, run in self.runs.items():
            key = {Pretraining: "family", Release: "release_of"}.get(type(run))
            if key is not None and getattr(run, key) not in self.families:
                raise ValueError(
                    f"runs.{name}.{key} is {getattr(run, key)!r}, and must be one of "
                    f"{', '.join(self.families)}"
                )
            if isinstance(run, Release | Later):
                continue
            trunk = self.runs.get(run.trunk) if isinstance(run, Phase) else run
            if isinstance(trunk, Pretraining) and trunk.family in self.families:
                _has_steps(f"runs.{name}", run, self.families[trunk.family])
        return self


def check_length(place: str, run: Later, family: Family) -> None:
    """Raise `Problem` for a stage that is shorter than a step."""
    if run.tokens is not None and run.tokens < family.tokens_per_step:
        raise Problem(
            f"{place} has {run.tokens:g} tokens, and must have those of a step, "
            f"{family.tokens_per_step:g}"
        )


def _has_steps(place: str, run: Pretraining | Phase, family: Family) -> None:
    falling, each = run.tokens, family.tokens_per_step
    if isinstance(run, Phase):
        falling, each = run.tokens - run.steady, run.batch * family.tokens_per_step
    if falling < each:
        raise ValueError(
            f"{place} has {falling:g} tokens{' after its steady ones' * isinstance(run, Phase)}, "
            f"and must have those of a step, {each:g}"
        )


def real_model(families: Families, name: str, **reading: Any) -> Architecture:
    """A family's model, `reading` what it does here; `Problem` where it is none."""
    return model({**families.families[name].model, **reading}, name, "model")


# Made once: every start of Snakemake checks all models.
MODEL: TypeAdapter[Architecture] = TypeAdapter(AnyArchitecture)


def model(shape: Mapping[str, Any], family: str, key: str) -> Architecture:
    """The model under a key of a family; `Problem` where it is none."""
    try:
        found: Architecture = MODEL.validate_python(shape)
    except ValidationError as error:
        raise problem(error, shape, FILE, {}, ("families", family, key)) from None
    return found


def first_of(families: Families, name: str, run: Pretraining | Phase | Later) -> Pretraining:
    """The run from fresh weights that one goes back to; `Problem` where there is none."""
    seen = [name]
    while isinstance(run, Later):
        before = families.runs.get(run.after)
        if before is None or isinstance(before, Release) or run.after in seen:
            raise Problem(
                f"{FILE}: runs.{seen[-1]}.after is {run.after!r}, and must be a run that does not "
                f"come after it: {', '.join(_trained(families, seen))}"
            )
        seen.append(run.after)
        run = before
    return run if isinstance(run, Pretraining) else trunk_of(families, seen[-1], run)


def _trained(families: Families, but: list[str]) -> list[str]:
    runs = families.runs.items()
    return [name for name, run in runs if not isinstance(run, Release) and name not in but]


def trunk_of(families: Families, name: str, phase: Phase) -> Pretraining:
    """The run that a phase goes on from; `Problem` where there is none."""
    trunk = families.runs.get(phase.trunk)
    if not isinstance(trunk, Pretraining):
        whole = [name for name, each in families.runs.items() if isinstance(each, Pretraining)]
        raise Problem(
            f"{FILE}: runs.{name}.trunk is {phase.trunk!r}, and must be a run from fresh weights: "
            f"{', '.join(whole)}"
        )
    return trunk
