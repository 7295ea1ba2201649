"""Types of config/tasks.yaml, and what a scale says of tasks."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from ptq_dynamics.base.components import union
from ptq_dynamics.base.fields import Count, Once, Strict
from ptq_dynamics.config.names import Name
from ptq_dynamics.measure import tasks
from ptq_dynamics.measure.names import MEAN

Shots = Annotated[int, Field(ge=0)]
if TYPE_CHECKING:
    Task = tasks.Task
else:
    Task = union("ptq_dynamics.measure.tasks", tasks.Task, by="source")


class Tasks(Strict):
    """The tasks of a scale, by `names` of config/tasks.yaml: `documents` of each (all that there
    are, where null), `batch` sequences at once, after `shots` examples, or as many as `shots_of`
    has for a task. Made tasks draw examples from a `pool` of so many, and ask also about documents
    of `others`, packages that nothing is trained on. A prompt has at most `context` tokens, which
    released models have to read; those trained here read no more than in training. Those
    `at_chance` are shown, and left out of the mean: in full precision, what comes out of the last
    stage is less than 2 standard errors better on them than chance."""

    names: Annotated[tuple[Name, ...], Field(min_length=1), Once]
    documents: Annotated[int, Field(ge=2)] | None
    batch: Count
    shots: Shots
    shots_of: dict[str, Shots] = {}
    pool: Count = 1
    context: Count | None = None
    others: Annotated[tuple[str, ...], Once] = ()
    at_chance: Annotated[tuple[str, ...], Once] = ()

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
