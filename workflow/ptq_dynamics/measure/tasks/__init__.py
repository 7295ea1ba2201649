"""Kinds of downstream task, one module each: what config/tasks.yaml says of one, and how it is
made. A task is one folder wherever it comes from."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ptq_dynamics.base.fields import Strict

Metric = Literal["acc", "acc_norm"]


class Task(Strict):
    """What every kind of task has; `made` of documents that a corpus holds out, or else fetched."""

    made: ClassVar[bool] = False

    source: str


@dataclass(frozen=True)
class TaskPart:
    """A task of lm-evaluation-harness: its name there and its definition, in this result or, with
    `builtin`, below the harness's folder of tasks; the files of its splits; and the metric that
    counts."""

    name: str
    definition: str
    builtin: bool
    splits: dict[str, str]
    metric: Metric
