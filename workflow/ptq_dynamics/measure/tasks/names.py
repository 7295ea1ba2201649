"""Names of the files and facts of a task, which is one folder wherever it comes from."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ptq_dynamics.measure.tasks.settings import Metric

# Of a made task: its definition, the documents that it asks about, and those that shots are drawn
# from.
DEFINITION = "task.yaml"
TEST = "test"
SHOTS = "shots"


@dataclass(frozen=True)
class Part:
    """A task of the harness: its name there and its definition, in this result or, with `builtin`,
    below the harness's folder of tasks; the files of its splits; and the metric that counts."""

    name: str
    definition: str
    builtin: bool
    splits: dict[str, str]
    metric: Metric


def facts(task: str, parts: Sequence[Part]) -> dict[str, Any]:
    """Manifest facts of a task."""
    return {"task": task, "parts": [asdict(part) for part in parts]}
