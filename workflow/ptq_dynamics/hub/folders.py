"""Checkpoints in local folders, and their properties without loading the weights."""

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from filecmp import cmp
from math import prod
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict

from ptq_dynamics.base.checkpoints import CONFIG, INDEX, SAFE, Forms, weight_files
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.hub.files import is_pickled, is_small, is_weights

STATE = "trainer_state.json"  # beside a checkpoint of the Trainer of transformers
TOKENS: Final = "num_input_tokens_seen"  # in trainer_state.json
BEST: Final = "best_global_step"  # its entry with the step of the best checkpoint
# Subfolders with the model at the end of a run.
FINAL = re.compile(r"(^|[-_])(final|last|latest)$")
# Names of saves that were interrupted, such as tmp-checkpoint-500 of transformers.
TEMPORARY = re.compile(r"\.|_*tmp(?![a-z])")
CONTEXT = ("max_position_embeddings", "n_positions", "n_ctx")  # its names in transformers
UNLIMITED = 1 << 20  # context length in tokens of a model without a limit
TRANSPOSED = frozenset({"gpt2", "openai-gpt", "imagegpt"})  # linear layers are saved [in, out]


class About(TypedDict):
    """Fields of a model (`train.architectures.given`), and its vocabulary."""

    name: str
    context: int
    total: int
    inputs: list[int]
    vocabulary: int


class LogEntry(TypedDict):
    """A step of a log, and the learning rate after it."""

    step: int
    learning_rate: float | None


class State(TypedDict):
    """Entries of trainer_state.json. None is unknown."""

    global_step: int | None
    num_input_tokens_seen: int | None
    log_history: list[LogEntry]
    best_global_step: NotRequired[int | None]


@dataclass(frozen=True)
class LocalFile:
    """A file of a checkpoint; `size` in bytes, `changed` in ns."""

    name: str
    size: int
    changed: int


def checkpoints(folder: Path, pattern: re.Pattern[str]) -> dict[Path, int | None]:
    """Return the subfolders with a checkpoint and the steps that `pattern` finds in their names,
    and final models whose trainer_state.json tells the step; or the folder itself without a step.
    Raises `Problem` if there is none, or a step occurs twice."""
    if not folder.is_dir():
        raise Problem(f"{folder} is no folder; correct the path")
    if not pattern.groups:
        raise Problem(f"--step {pattern.pattern!r} has no brackets around the step")
    found, is_one = dict[int, Path](), (folder / CONFIG).is_file()
    for path in sorted(each for each in folder.iterdir() if each.is_dir()):
        match = pattern.search(path.name)
        if match is None or not match[1].isdecimal() or TEMPORARY.match(path.name):
            continue
        if not (path / CONFIG).is_file():
            # A checkpoint may have subfolders with the states of optimizers.
            if not is_one:
                raise Problem(f"{path} has no {CONFIG}; save the whole model, or move it away")
        elif (other := found.setdefault(int(match[1]), path)) is not path:
            raise Problem(f"{path} has the step of {other}; give --step another pattern")
    if is_one and not found:
        return {folder: None}
    for path in _others(folder, found.values()):
        step = final_step(path) if _is_final(path, folder) and _weights(path) else None
        if step is not None and step not in found and twin(path, found.values()) is None:
            found[step] = path
    if not found:
        why = "and no subfolder that has one is named as checkpoint-500"
        mend = r"name the folder of one run, or describe the names: --step 'my-(\d+)'"
        raise Problem(f"{folder} has no {CONFIG}, {why}; {mend}")
    return {found[step]: step for step in sorted(found)}


def left_out(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    """Return a line for each model in a folder that is not among its checkpoints."""
    measured, lines = checkpoints(folder, pattern), list[str]()
    steps = {step: path.name for path, step in measured.items() if step is not None}
    for path in _others(folder, measured):
        mend = "; to measure it, move it to a subfolder checkpoint-STEP, or give --step"
        if (other := twin(path, measured)) is not None:
            why, mend = f"its weights are those of {other.name}", ""
        elif not _weights(path):
            why = f"its {SAFE} is not complete"
        elif path != folder and TEMPORARY.match(path.name):
            why = "its name is that of an interrupted save"
        elif not _is_final(path, folder):
            why = "its name has no step"
        else:
            name = steps.get(final_step(path) or 0)
            why = f"{name} has its step, but other weights" if name else "no file has its step"
        lines.append(f"{path} is left out: {why}{mend}")
    return lines


def _is_final(path: Path, folder: Path) -> bool:
    is_named = FINAL.search(path.name) and not TEMPORARY.match(path.name)
    return path == folder or bool(is_named)


def _others(folder: Path, known: Collection[Path]) -> list[Path]:
    """Return the other folders with a model: subfolders, and the folder itself."""
    every = [*sorted(each for each in folder.iterdir() if each.is_dir()), folder]
    return [
        path
        for path in every
        if path not in known and (path / CONFIG).is_file()
        if any(is_weights(each.name) for each in path.iterdir())
    ]


def _weights(folder: Path) -> list[Path]:
    try:
        return weight_files(folder)
    except Problem:
        return []


def twin(folder: Path, others: Iterable[Path]) -> Path | None:
    """Return the first of other checkpoints whose weights have the same bytes, if any."""
    ours = _weights(folder)
    for other in others if ours else ():
        theirs = _weights(other)
        if [path.name for path in ours] == [path.name for path in theirs] and all(
            cmp(one, two, shallow=False) for one, two in zip(ours, theirs, strict=True)
        ):
            return other
    return None


def final_step(folder: Path) -> int | None:
    """Return the step in trainer_state.json, or else the last step of its log."""
    known = state(folder)
    logged = (entry["step"] for entry in known["log_history"])
    return known["global_step"] or max(logged, default=None)


def state(folder: Path) -> State:
    """Return entries of trainer_state.json. Invalid numbers become None; entries of the log without
    a step are left out."""
    content = json_object(folder / STATE)
    logged = content.get("log_history")
    entries: list[LogEntry] = [
        {"step": step, "learning_rate": _number(entry.get("learning_rate"))}
        for entry in (logged if isinstance(logged, list) else ())
        if isinstance(entry, dict) and (step := _count(entry.get("step"))) is not None
    ]
    known: State = {
        "global_step": _count(content.get("global_step")),
        "num_input_tokens_seen": _count(content.get("num_input_tokens_seen")),
        "log_history": entries,
    }
    return {**known, BEST: _count(content[BEST])} if BEST in content else known


def _number(value: object) -> float | None:
    """Return a finite number that is not negative, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < sys.maxsize else None


def _count(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number.is_integer() else None


def json_object(path: Path) -> dict[str, Any]:  # anything, since other tools write it
    """Return the object in a JSON file, empty without a file. Raises `Problem` if it is invalid."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (ValueError, TypeError) as error:
        raise Problem(f"{path} is not a JSON object ({error}); restore it, or remove it") from None


def files(folder: Path) -> tuple[LocalFile, ...]:
    """Return the files of the checkpoint in a folder, without weights that transformers does not
    read. Raises `Problem` if its weights are not complete safetensors."""
    names = {path.name for path in folder.glob("*")}
    if not names & {SAFE, SAFE + INDEX} and any(map(is_pickled, names)):
        raise Problem(
            f"{folder} has its weights in .bin files, which can run code when they are read; "
            'convert them: python -c "from transformers import AutoModelForCausalLM as M; '
            f"M.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    weights = {path.name for path in weight_files(folder)}
    if SAFE not in weights:
        weights.add(SAFE + INDEX)
    return listed(folder, lambda name: name in weights or is_small(name))


def listed(folder: Path, is_one: Callable[[str], object]) -> tuple[LocalFile, ...]:
    """Return the files in a folder whose names satisfy `is_one`, by name."""
    every = (each for each in sorted(folder.iterdir()) if each.is_file() and is_one(each.name))
    found = ((each.name, each.stat()) for each in every)
    return tuple(LocalFile(name, about.st_size, about.st_mtime_ns) for name, about in found)


def about(config: Mapping[str, Any], tensors: Forms) -> About:  # a model may have any config
    """Return the properties of a model, from its config.json and the forms of its tensors."""
    # A model of text and images has a part for text.
    config = {**config, **(config.get("text_config") or {})}
    shapes = {name: shape for name, (_, shape) in tensors.items()}
    column = 0 if config["model_type"] in TRANSPOSED else 1
    inputs = {
        shape[column]
        for name, shape in shapes.items()
        if len(shape) == 2 and name.endswith(".weight") and any(map(str.isdigit, name.split(".")))
    }
    return {
        "name": config["model_type"],
        "context": next((config[key] for key in CONTEXT if key in config), UNLIMITED),
        "total": sum(map(prod, shapes.values())),
        "inputs": sorted(inputs),
        "vocabulary": config["vocab_size"],
    }
