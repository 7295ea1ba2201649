"""Tasks of lm-evaluation-harness, with their data sets: what needs a network, once a task."""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
from lm_eval.api.task import ConfigurableTask, Task
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.tasks import names
from ptq_dynamics.measure.tasks.loading import BUILTIN, check
from ptq_dynamics.measure.tasks.names import Part
from ptq_dynamics.measure.tasks.settings import HarnessSettings, Metric

# What a data set that is out of reach, or is none, leads to.
OUT_OF_REACH = (OSError, ValueError, RuntimeError, httpx.HTTPError)
# Letters of the reason that a library gives: some list all that they would have read.
TOLD = 200


def run(context: Context[HarnessSettings]) -> Mapping[str, Any]:
    """Write the splits that a task names as Parquet, a folder for each of its parts, and task.json,
    which says by which definitions of the harness they are evaluated.

    Raises `Problem` for a task that the harness has not, is pinned to no revision, or is out of
    reach.
    """
    settings = context.settings
    place = f"config/tasks.yaml: {settings.task}"
    _check_pin(settings, place)
    manager = TaskManager()
    if settings.name not in manager.all_tasks:
        near = difflib.get_close_matches(settings.name, manager.all_tasks, 3, 0)
        raise Problem(
            f"{place}.task names no task of lm-evaluation-harness: {settings.name!r} (the nearest: "
            f"{', '.join(near)})"
        )
    loaded = _load(manager, settings, context.scratch, place)
    parts = []
    for name, task in loaded.items():
        check(name, task)
        metric = _metric(name, task, settings.metric, place)
        file = manager.task_index[name].yaml_path
        assert file is not None
        definition = file.relative_to(BUILTIN).as_posix()
        parts.append(Part(name, definition, True, _save(context.out, name, task), metric))
        context.progress.maybe(f"{name}: {len(task.eval_docs):,} documents")
    said = {"task": settings.task, "parts": [asdict(part) for part in parts]}
    (context.out / "task.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return names.facts(settings.task, parts)


def _check_pin(settings: HarnessSettings, place: str) -> None:
    local = settings.repository is not None and settings.repository.startswith(("/", "./"))
    if settings.revision is None and not local:
        raise Problem(
            f"{place}.revision is null, and nothing is fetched that is pinned to no commit; set it "
            "to the full commit id of its data set, the top one of its page of commits on the hub"
        )


def _load(
    manager: TaskManager, settings: HarnessSettings, scratch: Path, place: str
) -> dict[str, ConfigurableTask]:
    """The tasks of that name, with their data, by their names in the harness."""
    entry = manager.task_index[settings.name]
    own = load_yaml(entry.yaml_path, resolve_func=False) if entry.yaml_path else {}
    data: dict[str, Any] = {**(own.get("dataset_kwargs") or {}), "cache_dir": str(scratch / "data")}
    if settings.revision is not None:
        data["revision"] = settings.revision
    if settings.files:
        data["data_files"] = settings.files
    changes: dict[str, Any] = {"dataset_kwargs": data}
    if settings.repository is not None:
        changes |= {"dataset_path": settings.repository, "dataset_name": None}
    try:
        # A dictionary with changes would be taken for a task of its own.
        built = manager._factory.build(entry, overrides=changes, registry=manager.task_index)
        loaded = manager.load(built if isinstance(built, list) else [built])
    except OUT_OF_REACH as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise Problem(f"{place}: its data set is out of reach ({reason[:TOLD]})") from error
    except KeyError as error:
        raise Problem(
            f"{place}: its data set has no {error}, which the task reads; correct repository, or "
            "files, which name a file for every split"
        ) from error
    found: dict[str, Task] = loaded["tasks"]
    plain = {name: task for name, task in found.items() if isinstance(task, ConfigurableTask)}
    if len(plain) < len(found):
        raise Problem(f"{place}.task is a program of its own in the harness; name another")
    return plain


def _metric(name: str, task: ConfigurableTask, asked: Metric | None, place: str) -> Metric:
    metrics: Iterable[str] = task._metric_fn_list
    if asked is not None:
        if asked not in metrics:
            raise Problem(
                f"{place}.metric is {asked}, and {name} has {', '.join(metrics)}; leave it out"
            )
        return asked
    if "acc" in metrics:
        return "acc"
    if "acc_norm" in metrics:
        return "acc_norm"
    raise Problem(f"{place}.task has no accuracy ({name} has {', '.join(metrics)}); name another")


def _save(out: Path, name: str, task: ConfigurableTask) -> dict[str, str]:
    config = task.config
    named = (config.training_split, config.validation_split, config.test_split)
    shots = task.fewshot_cfg.split
    files = {}
    for split in dict.fromkeys(each for each in (*named, shots) if each is not None):
        if split in task.dataset:
            file = out / name / f"{split}.parquet"
            file.parent.mkdir(exist_ok=True)
            task.dataset[split].to_parquet(file)
            files[split] = file.relative_to(out).as_posix()
    return files
