"""Kinds of downstream task in config/tasks.yaml, one class each, and what a scale says of tasks."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ptq_dynamics.base.fields import Count, Once, Strict
from ptq_dynamics.config.names import Name
from ptq_dynamics.hub.files import COMMIT
from ptq_dynamics.measure.names import MEAN
from ptq_dynamics.measure.tasks.settings import KindName, Metric

Shots = Annotated[int, Field(ge=0)]


class MadeTask(Strict):
    """Questions about documents that an embedded corpus holds out, of a kind that
    `ptq_dynamics/measure/tasks/questions.py` has."""

    source: Literal["made"]
    kind: KindName


class HarnessTask(Strict):
    """A task of lm-evaluation-harness by its name there, whose data set is read at the commit
    `revision`; or, where the harness names none that can be read, that of `repository`, in `files`
    by split. A folder, which begins with / or ./, has no revision. `metric`: acc unless said. Any
    that is scored by likelihood and has an accuracy is taken at scales gpu and paper; one that has
    models write, or that has none, is refused in one line."""

    source: Literal["harness"]
    task: str
    repository: str | None = None
    files: dict[str, str] = {}
    revision: str | None
    metric: Metric | None = None

    @model_validator(mode="after")
    def _pinned(self) -> "HarnessTask":
        if self.repository and self.repository.startswith(("/", "./")) and self.revision:
            raise ValueError(
                f"{self.repository} is a local folder, which has no revision; say revision: null"
            )
        if self.revision is not None and not COMMIT.fullmatch(self.revision):
            raise ValueError(
                f"revision is {self.revision!r}, and must be a full commit id, 40 hexadecimal "
                "digits, or null as long as it is not known, which leaves the task out of reach"
            )
        return self


Task = Annotated[MadeTask | HarnessTask, Field(discriminator="source")]


class Tasks(Strict):
    """The tasks of a scale, by `names` of config/tasks.yaml: `documents` of each (all that there
    are, where null), `batch` sequences at once, after `shots` examples, or as many as `shots_of`
    has for a task. Made tasks draw examples from a `pool` of so many, and ask also about documents
    of `others`, packages that nothing is trained on. A prompt has at most `context` tokens, which
    released models have to read; those trained here read no more than in training. Those
    `at_chance` are shown, and left out of the mean: in full precision, what comes out of the last
    stage is less than 2 standard errors better on them than chance. Backend `vllm` is untested
    here: who asks for it in the scale's file installs it into .venv, with the torch it pins."""

    names: Annotated[tuple[Name, ...], Field(min_length=1), Once]
    documents: Annotated[int, Field(ge=2)] | None
    batch: Count
    shots: Shots
    shots_of: dict[str, Shots] = {}
    pool: Count = 1
    context: Count | None = None
    others: Annotated[tuple[str, ...], Once] = ()
    at_chance: Annotated[tuple[str, ...], Once] = ()
    backend: Literal["transformers", "vllm"] = "transformers"

    @model_validator(mode="after")
    def _leaves_some(self) -> "Tasks":
        for key, named in (("at_chance", self.at_chance), ("shots_of", self.shots_of)):
            for name in named:
                if name not in self.names:
                    raise ValueError(
                        f"{key} has {name!r}, which names has not ({', '.join(self.names)}); name "
                        "it there, or leave it out here"
                    )
        if len(self.at_chance) == len(self.names):
            raise ValueError("at_chance has all of names, which leaves no task for the mean")
        if MEAN in self.names:
            raise ValueError(f"names has {MEAN!r}, which is what the mean over tasks is called")
        return self

    def shots_before(self, task: str) -> int:
        """Examples before each question of a task."""
        return self.shots_of.get(task, self.shots)
