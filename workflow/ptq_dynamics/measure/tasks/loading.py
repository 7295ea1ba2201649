"""Tasks as the harness takes them, from the files of a result alone: no network, no cache."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lm_eval.tasks
import pyarrow.parquet as pq
from datasets import Dataset, DatasetDict
from datasets.table import InMemoryTable
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks._yaml_loader import load_yaml

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.measure.tasks.names import Part

BUILTIN = Path(lm_eval.tasks.__file__).parent
# Keys that say where the harness would read data, or what other tasks a file defines.
ELSEWHERE = ("dataset_path", "dataset_name", "dataset_kwargs", "tag", "group", "task_list")


def load(manifest: Manifest) -> list[tuple[Part, ConfigurableTask]]:
    """The parts of a task; several, where the harness has a group of that name.

    Raises `Problem` for one that is not scored by likelihood.
    """
    return [
        (part, _task(manifest, part)) for part in (Part(**each) for each in manifest.facts["parts"])
    ]


def _task(manifest: Manifest, part: Part) -> ConfigurableTask:
    path = BUILTIN / part.definition if part.builtin else manifest.file(part.definition)
    config = {name: value for name, value in load_yaml(path).items() if name not in ELSEWHERE}
    data = DatasetDict({s: _read(manifest.file(file)) for s, file in part.splits.items()})
    # The harness would copy the files to its cache, and ask the hub for newer ones.
    task = ConfigurableTask(config={**config, "custom_dataset": lambda **_: data})
    check(part.name, task)
    return task


def check(name: str, task: ConfigurableTask) -> None:
    """Raise `Problem` for a task that is not scored by likelihood."""
    if task.OUTPUT_TYPE not in ("multiple_choice", "loglikelihood"):
        raise Problem(
            f"task {name} has models write ({task.OUTPUT_TYPE}), and only what is scored by "
            "likelihood is evaluated; remove it from tasks.names in the scale's file under "
            "config/scales"
        )


def _read(file: Path) -> Dataset:
    if file.suffix == ".parquet":
        return Dataset(InMemoryTable(pq.read_table(file)))
    lines = file.read_text(encoding="utf-8").splitlines()
    rows: Sequence[dict[str, Any]] = [json.loads(line) for line in lines]
    return Dataset.from_list(list(rows))
