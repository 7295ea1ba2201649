"""Types of config/families.yaml: public families, their runs, and what is made of these.

Lengths are tokens of the real runs. What scales make of them is in `miniatures` and `releases`.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter

from ptq_dynamics.base.fields import Count, Name, Named, Once, Rate, Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import require
from ptq_dynamics.train.architectures import AnyArchitecture, Architecture
from ptq_dynamics.train.architectures.given import Given
from ptq_dynamics.train.averages import AnyAverage
from ptq_dynamics.train.objectives import AnyObjective
from ptq_dynamics.train.objectives.language import Language
from ptq_dynamics.train.optimizers import AnyOptimizer
from ptq_dynamics.train.schedules import Shape

FILE = "config/families.yaml"
# They become folders.
Revisions = Annotated[tuple[Name, ...], Once]
# As https://huggingface.co/OWNER/NAME has it.
Repository = Annotated[str, Field(pattern=r"^([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*$")]
Floor = Annotated[float, Field(ge=0, le=1)]
Tokens = Annotated[float, Field(ge=1, le=1e18)]


# Made once: every start of Snakemake checks all models.
MODEL: TypeAdapter[Architecture] = TypeAdapter(AnyArchitecture)


def _with_context(model: Any) -> Any:
    # A scale says how much a model reads at once.
    return {"context": 2, **model} if isinstance(model, dict) else model


class Family(Strict):
    """What is known of a family: what figures call it, tokens of a step, peak learning rate (where
    publications give another one too, that as `other_peak_lr`, and figures mark the rate), steps of
    the warmup, model, optimizer, and what is `uncertain` of it; and what its `miniature` changes
    of the model, at the widths that a scale multiplies, with an optimizer of its own where the
    family's makes no sense for so few steps. Its checkpoints are revisions of a `repository`, in
    whose names `step_in` (with one group) finds the step, in `steps_each`; `convert` where weights
    are pickles; `reads_as` names another family with the same tokenizer; weights have a `format` of
    their own where transformers does not read them. Those that are `unreadable`, and why, are not
    fetched."""

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
    miniature: dict[str, Any]
    miniature_optimizer: AnyOptimizer | None = None
    uncertain: str | None = None


class Pretraining(Strict):
    """A run of a family from fresh weights over so many `tokens`, at the family's peak rate unless
    it has one of its own. A cosine ends at its `horizon`, beyond the run where it is cut short, at
    the share `floor` of the peak."""

    family: str
    schedule: Literal["constant", "cosine"]
    tokens: Tokens
    horizon: Tokens | None = None
    floor: Floor = 0.0
    peak_lr: Rate | None = None
    revisions: Revisions = ()


class Phase(Strict):
    """What goes on from the end of a run over so many `tokens`: `steady` ones at its rate, then
    down to the share `floor` of the trunk's peak; on other text, with a `batch` so many times as
    large, where that is said. The steps of its revisions go on from the trunk's, or it `restarts`.
    Averages of its last checkpoints take those that its authors `averaged`, if they are named."""

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
    """A stage that comes `after` a run with nothing but its weights, called `stage` in tables: over
    so many `tokens`, where they are known, a warmup over a share of them to `peak_lr`, then half a
    cosine to the share `floor` of that, towards an `objective`, on sequences `longer` so many times
    than in pre-training, with a base of the rotary embedding and an optimizer of its own where they
    are said. The steps of its revisions begin anew; they may have none."""

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
    """Revisions of a family's repository, or of another one, that stand at no step of a run, as the
    mean of several that its authors made. No miniature stands for them."""

    release_of: str
    repository: Repository | None = None
    revisions: Annotated[Revisions, Field(min_length=1)]


# By what stands in an entry of each kind and in no other.
KINDS = {"trunk": Phase, "release_of": Release, "after": Later}


def _kind(data: Any) -> str:
    return next((kind.__name__ for key, kind in KINDS.items() if key in data), "Pretraining")


AnyFamilyRun = Annotated[
    Annotated[Pretraining, Tag("Pretraining")]
    | Annotated[Phase, Tag("Phase")]
    | Annotated[Later, Tag("Later")]
    | Annotated[Release, Tag("Release")],
    Discriminator(_kind),
]


class Local(Strict):
    """Checkpoints of Hugging Face in the subfolders of a `folder`, in whose names the pattern
    `step` finds the step, with one group."""

    folder: str
    step: re.Pattern[str] = re.compile(r"(?:checkpoint|step|iter)[-_]?0*(\d+)$")


class Remote(Strict):
    """Revisions of a repository, in whose names the pattern `step` finds the step, with one
    group."""

    repository: Repository
    revisions: Annotated[Revisions, Field(min_length=1)]
    step: re.Pattern[str] = re.compile(r"(\d+)")


class Own(Strict):
    """A run of checkpoints from elsewhere. Its learning rate is one `rate`, or stands in a CSV file
    with the columns step and lr, or else in the trainer_state.json of the last checkpoint. One in
    `every` is measured, besides the last, or the `last` ones. With `skip`, matrices that a
    quantizer does not take stay in full precision. The `model` is that of the first checkpoint in a
    folder unless it is given."""

    checkpoints: Local | Remote
    tokens_per_step: Tokens | None = None
    rate: Annotated[Rate | str, Field(union_mode="left_to_right")] | None = None
    every: Count = 1
    last: Count | None = None
    skip: bool = False
    model: Given | None = None


class Families(Strict):
    """Families, their runs, and averages of their checkpoints, by name; and checkpoints of one's
    `own`."""

    families: Named[Family]
    runs: Named[AnyFamilyRun]
    averages: Named[AnyAverage]
    own: Named[Own] = {}

    def check(self) -> None:
        """Raise `Problem` where families and runs do not fit together."""
        for name, run in self.runs.items():
            place, own = f"{FILE}: runs.{name}", self.family_of(name)
            require(f"{place}.family", "family", [own], self.families)
            least = self.families[own].tokens_per_step
            if isinstance(run, Phase) and run.tokens - (run.steady or 0) < least * run.batch:
                raise Problem(f"{place}.tokens, but for steady ones, must be {least:g}, a step's")

    def family_of(self, name: str) -> str:
        """Name of the family of a run."""
        run = self.runs[name]
        return run.release_of if isinstance(run, Release) else self.first(name)[1].family

    def first(self, name: str) -> tuple[str, Pretraining]:
        """The run from fresh weights that one goes back to; `Problem` where there is none."""
        seen = [name]
        while not isinstance(run := self.runs[seen[-1]], Pretraining):
            key = "trunk" if isinstance(run, Phase) else "after"
            kinds = Pretraining if key == "trunk" else Pretraining | Phase | Later
            runs = self.runs.items()
            known = [n for n, each in runs if isinstance(each, kinds) and n not in seen]
            require(f"{FILE}: runs.{seen[-1]}.{key}", "run to follow", [getattr(run, key)], known)
            seen.append(getattr(run, key))
        return seen[-1], run

    def tokens_before(self, name: str) -> float | None:
        """Tokens up to where a run begins, if those of all before are known."""
        run = self.runs[name]
        if isinstance(run, Pretraining | Release):
            return 0
        previous = run.trunk if isinstance(run, Phase) else run.after
        before, own = self.tokens_before(previous), getattr(self.runs[previous], "tokens", None)
        return None if before is None or own is None else before + own
