"""Fetch tasks of lm-evaluation-harness with their data sets."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import Field

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.hub.files import COMMIT
from ptq_dynamics.measure.tasks import Metric, Task, TaskPart

if TYPE_CHECKING:
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.tasks import TaskManager


class HarnessTask(Task):
    """A `task` of lm-evaluation-harness that is scored by likelihood and has acc or acc_norm.
    Its data set, or `repository` with `files` by split, is read at the commit `revision`."""

    source: Literal["harness"]
    task: str
    repository: str | None = None
    files: dict[str, str] = {}
    revision: Annotated[str, Field(pattern=COMMIT.pattern)]


class HarnessSettings(Strict):
    """A task and its name in config/tasks.yaml."""

    name: str
    task: HarnessTask


def run(context: Context[HarnessSettings]) -> Mapping[str, object]:
    """Write the splits of a task as Parquet, with a folder for each part."""
    from ptq_dynamics.measure.answers import BUILTIN

    name, settings = context.settings.name, context.settings.task
    place = f"config/tasks.yaml: {name}"
    manager = _index(settings.task, BUILTIN)
    if settings.task not in manager.all_tasks:
        raise Problem(f"{place}.task: lm-evaluation-harness has no task {settings.task!r}")
    parts = []
    for part, task in _load(manager, settings, context.scratch, place).items():
        metrics, kind = list(task._metric_fn_list), task.OUTPUT_TYPE
        metric = next((one for one in get_args(Metric) if one in metrics), None)
        if metric is None or kind not in ("multiple_choice", "loglikelihood"):
            raise Problem(
                f"{place}.task needs acc or acc_norm by likelihood, but {part} has "
                f"{', '.join(metrics)} by {kind}; choose another task"
            )
        definition = Path(manager.task_index[part].yaml_path or "").relative_to(BUILTIN)
        splits = _save(context.out, part, task)
        parts.append(asdict(TaskPart(part, definition.as_posix(), True, splits, metric)))
        context.progress.maybe(f"{part}: {len(task.eval_docs):,} documents")
    return {"task": name, "parts": parts}


def _index(task: str, folder: Path) -> "TaskManager":
    """Return an index of the subfolder of `folder` that has the file of a task. If no file has it,
    index all tasks of the harness, which takes 16 s."""
    from lm_eval.tasks import TaskManager

    named = re.compile(rf"^task: *['\"]?{re.escape(task)}['\"]? *$", re.MULTILINE)
    for file in sorted(folder.rglob("*.yaml"), key=Path.as_posix):
        if named.search(file.read_text(encoding="utf-8")):
            return TaskManager(include_path=file.parent, include_defaults=False)
    return TaskManager()


def _load(
    manager: "TaskManager", settings: HarnessTask, scratch: Path, place: str
) -> "dict[str, ConfigurableTask]":
    """Load a task or a group of tasks with their data, by name."""
    import httpx
    from lm_eval.tasks._yaml_loader import load_yaml

    entry = manager.task_index[settings.task]
    own = load_yaml(entry.yaml_path, resolve_func=False) if entry.yaml_path else {}
    data = {**(own.get("dataset_kwargs") or {}), "revision": settings.revision}
    data |= {"data_files": settings.files} if settings.files else {}
    changes: dict[str, object] = {"dataset_kwargs": {**data, "cache_dir": str(scratch / "data")}}
    if settings.repository is not None:
        changes |= {"dataset_path": settings.repository, "dataset_name": None}
    try:
        # The public function would read a dictionary with changes as a new task.
        built = manager._factory.build(entry, overrides=changes, registry=manager.task_index)
        return dict(manager.load(built if isinstance(built, list) else [built])["tasks"])
    except (OSError, ValueError, RuntimeError, KeyError, httpx.HTTPError) as error:
        # Some messages list every file of a data set.
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise Problem(
            f"{place}: the data set cannot be loaded ({reason}); correct repository, files or "
            "revision"
        ) from error


def _save(out: Path, name: str, task: "ConfigurableTask") -> dict[str, str]:
    config, files = task.config, {}
    named = (config.training_split, config.validation_split, config.test_split)
    (out / name).mkdir()
    for split in dict.fromkeys((*named, task.fewshot_cfg.split)):
        if split in task.dataset:
            files[split] = f"{name}/{split}.parquet"
            task.dataset[split].to_parquet(out / files[split])
    return files
