"""Kinds of downstream task, one module each: an entry of config/tasks.yaml, and its stage."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ptq_dynamics.base.fields import Strict

Metric = Literal["acc", "acc_norm"]


class Task(Strict):
    """A downstream task, `made` from held-out documents of a corpus or fetched."""

    made: ClassVar[bool] = False

    source: str


@dataclass(frozen=True)
class TaskPart:
    """A task of lm-evaluation-harness with the files of its splits.
    Its `definition` is a file of the result or, if `builtin`, of the harness."""

    name: str
    definition: str
    builtin: bool
    splits: dict[str, str]
    metric: Metric
