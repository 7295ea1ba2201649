"""Settings of the stages that make and fetch tasks."""

from dataclasses import dataclass
from typing import Literal

KindName = Literal[
    "signature", "next-line", "word", "ending", "first-sentence", "parameter", "type", "prose"
]
Metric = Literal["acc", "acc_norm"]


@dataclass(frozen=True)
class MadeSettings:
    """A task of `documents` questions of a kind, and `pool` more to draw shots from; a prompt with
    `shots` of them has at most `context` tokens."""

    task: str
    kind: KindName
    documents: int
    pool: int
    shots: int
    context: int


@dataclass(frozen=True)
class HarnessSettings:
    """A task of the harness, `name` there and `task` in config/tasks.yaml, with its data set at the
    commit `revision`; or that of `repository`, in `files` by split. `metric`: None is acc, or else
    acc_norm."""

    task: str
    name: str
    repository: str | None
    files: dict[str, str]
    revision: str | None
    metric: Metric | None
