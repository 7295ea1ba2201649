"""Types of config/families.yaml: public families, their runs, and averages of their checkpoints.

Lengths are tokens of the real runs; `miniatures` and `releases` adapt them to a scale."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, TypeAdapter

from ptq_dynamics.base.fields import Count, Name, Named, Once, Rate, Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import require
from ptq_dynamics.train.architectures import AnyArchitecture, Architecture
from ptq_dynamics.train.architectures.given import Given
from ptq_dynamics.train.objectives import AnyObjective
from ptq_dynamics.train.objectives.language import Language
from ptq_dynamics.train.optimizers import AnyOptimizer
from ptq_dynamics.train.schedules import Floor, Shape
from ptq_dynamics.trajectories.averages import AnyAverage
from ptq_dynamics.trajectories.local import LocalCheckpoint

FILE = "config/families.yaml"
Revisions = Annotated[tuple[Name, ...], Once]  # names of folders
# OWNER/NAME on https://huggingface.co.
Repository = Annotated[str, Field(pattern=r"^([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*$")]

Tokens = Annotated[float, Field(ge=1, le=1e18)]

# Built once, because every start of Snakemake validates all models.
MODEL: TypeAdapter[Architecture] = TypeAdapter(AnyArchitecture)


def _with_context(model: object) -> object:
    return {"context": 2, **model} if isinstance(model, dict) else model  # scales set it


class Family(Strict):
    """A public family. Figures mark the rate if publications also give `other_peak_lr`. `warmup` is
    in steps. `miniature` overrides fields of `model`, at widths that a scale multiplies. The one
    group of `step_in` finds the step in names of revisions, in units of `steps_each`. `convert` is
    for pickled weights, `format` for weights that transformers does not read. `reads_as` names a
    family with the same tokenizer. `unreadable` is the reason why no checkpoint can be fetched."""

    label: Annotated[str, Field(min_length=1)]
    repository: Repository | None = None
    reads_as: str | None = None
    unreadable: str | None = None
    step_in: re.Pattern[str] = re.compile(r"(\d+)")
    steps_each: Count = 1
    convert: bool = False
    format: Literal["olmo"] | None = None
    vocabulary: Count
    tokens_per_step: Tokens
    peak_lr: Rate
    other_peak_lr: Rate | None = None
    warmup: Count
    model: Annotated[AnyArchitecture, BeforeValidator(_with_context)]
    optimizer: AnyOptimizer
    miniature: dict[str, object]
    miniature_optimizer: AnyOptimizer | None = None
    uncertain: str | None = None


class Pretraining(Strict):
    """A run from fresh weights. A cosine ends at its `horizon`, which may lie beyond the run, at
    the share `floor` of the peak rate. `peak_lr` overrides the family's. A miniature has the share
    `e_folds` of the sum of rate times weight decay."""

    batch: ClassVar[int] = 1  # relative, as of a `Phase`

    family: str
    schedule: Literal["constant", "cosine"]
    tokens: Tokens
    horizon: Tokens | None = None
    floor: Floor = 0.0
    peak_lr: Rate | None = None
    e_folds: Rate = 1.0
    revisions: Revisions = ()


class Phase(Strict):
    """A continuation of a run: `steady` tokens at its rate, then a cooldown to the share `floor` of
    its peak rate. `batch` is relative to the trunk's. Steps of revisions continue those of the
    trunk unless it `restarts`. The authors averaged the revisions `averaged`."""

    trunk: str
    tokens: Tokens
    steady: Tokens | None = None
    shape: Shape = "linear"
    floor: Floor = 0.0
    corpus: str | None = None
    batch: Count = 1
    restarts: bool = False
    revisions: Revisions = ()
    averaged: Revisions = ()


class Later(Strict):
    """A stage `after` a run, from its weights alone; tables show the name `stage`. The schedule is
    a warmup over a share of the `tokens`, then half a cosine to the share `floor` of the peak rate.
    Sequences are `longer` by this factor. Steps of revisions, if they have any, start at zero."""

    batch: ClassVar[int] = 1

    after: str
    stage: str
    objective: AnyObjective = Language()
    tokens: Tokens | None = None
    peak_lr: Rate
    warmup: Floor = 0.0
    floor: Floor = 0.0
    longer: Count = 1
    rotary_base: Rate | None = None
    corpus: str | None = None
    optimizer: AnyOptimizer | None = None
    uncertain: str | None = None
    revisions: Revisions = ()


class Release(Strict):
    """Revisions without a step in a run, such as means by the authors; they have no miniature."""

    release_of: str
    repository: Repository | None = None
    revisions: Annotated[Revisions, Field(min_length=1)]


# Keys that occur in entries of one kind only.
KINDS = {"trunk": Phase, "release_of": Release, "after": Later}


def _kind(data: object) -> str:
    keys = data if isinstance(data, dict) else ()
    return next((kind.__name__ for key, kind in KINDS.items() if key in keys), "Pretraining")


AnyFamilyRun = Annotated[
    Annotated[Pretraining, Tag("Pretraining")]
    | Annotated[Phase, Tag("Phase")]
    | Annotated[Later, Tag("Later")]
    | Annotated[Release, Tag("Release")],
    Discriminator(_kind),
]


def _of_one_group(pattern: re.Pattern[str]) -> re.Pattern[str]:
    if pattern.groups != 1:
        raise ValueError("must have one pair of brackets, around the step")
    return pattern


StepPattern = Annotated[re.Pattern[str], AfterValidator(_of_one_group)]


class Local(Strict):
    """Checkpoints of Hugging Face in the subfolders of a `folder`; the one group of the pattern
    `step` finds the step in their names. Names that fit a pattern of `exclude` are left out."""

    folder: str
    exclude: tuple[str, ...] = ()
    step: StepPattern = re.compile(r"(?:checkpoint|step|iter)[-_]?0*(\d+)$")


STEP = r"(?:checkpoint|ckpt|step|iter(?:ation)?)s?[-_]?"
ON_HUB = re.compile(rf"^(?:.*{STEP}|(?!.*{STEP}\d)\D*)(\d+)(?![\d.]*[kKmMbBtT](?![a-zA-Z]))")


class Remote(Strict):
    """Revisions of a repository; the one group of `step` finds the step in their names: by default
    the number after such a word, or else the first one, but no amount such as 10k or 2.5B."""

    repository: Repository
    revisions: Annotated[Revisions, Field(min_length=1)]
    step: StepPattern = ON_HUB


def _place_of(data: object) -> str:
    is_remote = "repository" in data if isinstance(data, dict) else isinstance(data, Remote)
    return "Remote" if is_remote else "Local"


class Own(Strict):
    """Own checkpoints. The learning `rate` is a number, or a CSV file with the columns step and lr,
    or else that of scheduler.pt and trainer_state.json. One checkpoint in `every` is measured,
    besides the last, or the `last` ones. With `skip`, matrices that a quantizer does not support
    stay in full precision. With `bos`, blocks of text begin with the tokens that the tokenizer puts
    before a text. With `trusts_code`, code of the model in its folder, or at its commit, may run. A
    missing `model` is read from the first checkpoint of a folder. The `deleted`
    checkpoints were measured before they were deleted."""

    checkpoints: Annotated[
        Annotated[Local, Tag("Local")] | Annotated[Remote, Tag("Remote")], Discriminator(_place_of)
    ]
    tokens_per_step: Tokens | None = None
    rate: Annotated[Rate | str, Field(union_mode="left_to_right")] | None = None
    every: Count = 1
    last: Count | None = None
    skip: bool = False
    bos: bool = False
    trusts_code: bool = False
    model: Given | None = None
    deleted: tuple[LocalCheckpoint, ...] = ()


class Families(Strict):
    """Families, their runs and averages of their checkpoints, and `own` checkpoints, by name."""

    families: Named[Family]
    runs: Named[AnyFamilyRun]
    averages: Named[AnyAverage]
    own: Named[Own] = {}

    def check(self) -> None:
        """Raise `Problem` if families and runs do not fit together."""
        for name, run in self.runs.items():
            place, own = f"{FILE}: runs.{name}", self.family_of(name)
            require(f"{place}.family", "family", [own], self.families)
            least = self.families[own].tokens_per_step
            if isinstance(run, Phase) and run.tokens - (run.steady or 0) < least * run.batch:
                raise Problem(f"{place}.tokens minus steady must be at least one step, {least:g}")

    def family_of(self, name: str) -> str:
        """Return the name of a run's family."""
        run = self.runs[name]
        return run.release_of if isinstance(run, Release) else self.first(name)[1].family

    def first(self, name: str) -> tuple[str, Pretraining]:
        """Return name and settings of the run from fresh weights at the start of a lineage."""
        seen = [name]
        while not isinstance(run := self.runs[seen[-1]], Pretraining):
            key = "trunk" if isinstance(run, Phase) else "after"
            kinds = Pretraining if key == "trunk" else Pretraining | Phase | Later
            runs = self.runs.items()
            known = [n for n, other in runs if isinstance(other, kinds) and n not in seen]
            require(f"{FILE}: runs.{seen[-1]}.{key}", "run to follow", [getattr(run, key)], known)
            seen.append(getattr(run, key))
        return seen[-1], run

    def tokens_before(self, name: str) -> float | None:
        """Return the tokens before the first step of a run; None if they are unknown."""
        run = self.runs[name]
        if isinstance(run, Pretraining | Release):
            return 0
        previous = run.trunk if isinstance(run, Phase) else run.after
        before, own = self.tokens_before(previous), getattr(self.runs[previous], "tokens", None)
        return None if before is None or own is None else before + own
