"""Checkpoints in local folders, and their properties without loading the weights."""

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from filecmp import cmp
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from ptq_dynamics.base.checkpoints import CONFIG, INDEX, SAFE, UNCALLED, Forms, weight_files
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.hub import formats
from ptq_dynamics.hub.files import is_code, is_small, is_weights

STATE = "trainer_state.json"  # beside a checkpoint of the Trainer of transformers
# Subfolders with the model at the end of a run.
FINAL = re.compile(r"(^|[-_])(final|last|latest)$")
# Names of saves that were interrupted, such as tmp-checkpoint-500 of transformers.
TEMPORARY = re.compile(r"\.|_*tmp(?![a-z])")
# Names of the context length in transformers; the last is that of MPT and DBRX.
CONTEXT = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
UNLIMITED = 1 << 20  # context length in tokens of a model without a limit
TRANSPOSED = frozenset({"gpt2", "openai-gpt", "imagegpt"})  # linear layers are saved [in, out]


class State(NamedTuple):
    """What trainer_state.json tells: step, tokens, the steps of its log with their learning rates,
    and whether it names the best step. None is unknown."""

    step: int | None
    tokens: int | None
    log: list[tuple[int, float | None]]
    names_best: bool


@dataclass(frozen=True)
class LocalFile:
    """A file of a checkpoint; `size` in bytes, `changed` in ns."""

    name: str
    size: int
    changed: int


def checkpoints(
    folder: Path, pattern: re.Pattern[str], exclude: Iterable[str] = ()
) -> dict[Path, int | None]:
    """Return the subfolders with a checkpoint and the steps that `pattern` finds in their names,
    and final models whose trainer_state.json tells the step; or the folder itself without a step.
    Names that fit a pattern of `exclude` are left out. Raises `Problem` if there is none, or a step
    occurs twice."""
    if not folder.is_dir():
        raise Problem(f"{folder} is no folder; correct the path")
    by_step, lacking = dict[int, Path](), list[Path]()
    stepped = _stepped(folder, pattern, exclude)
    for path, step in stepped.items():
        if TEMPORARY.match(path.name):
            continue
        if not (path / CONFIG).is_file():
            lacking.append(path)
        elif (other := by_step.setdefault(step, path)) is not path:
            mend = "give --step another pattern, or --exclude one"
            raise Problem(f"{path} has the step of {other}; {mend}")
    if (folder / CONFIG).is_file() and not by_step:
        return {folder: None}
    for path in _others(folder, by_step.values(), exclude):
        last = _final_step(path) if _is_final(path, folder) and _weights(path) else None
        if last is not None and last not in by_step and _twin(path, by_step.values()) is None:
            by_step[last] = path
    if by_step:
        return {by_step[step]: step for step in sorted(by_step)}
    for path in (*lacking, folder):
        if (kind := formats.recognized(path)) is not None:
            raise Problem(f"{path} has {kind}")
    if len(_stepped(folder, pattern)) > len(stepped):
        raise Problem(f"--exclude leaves no checkpoint in {folder}; correct it")
    if lacking:
        raise Problem(f"{lacking[0]} has no {CONFIG}; save the whole model, or move it away")
    why = "and no subfolder that has one is named as checkpoint-500"
    mend = r"name the folder of one run, or describe the names: --step 'my-(\d+)'"
    raise Problem(f"{folder} has no {CONFIG}, {why}; {mend}")


def _stepped(
    folder: Path, pattern: re.Pattern[str], exclude: Iterable[str] = ()
) -> dict[Path, int]:
    """Return the subfolders whose names have a step, and the step."""
    matches = {path: pattern.search(path.name) for path in _subfolders(folder, exclude)}
    return {path: int(m[1]) for path, m in matches.items() if m and (m[1] or "").isdecimal()}


def _subfolders(folder: Path, exclude: Iterable[str]) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not is_excluded(p, exclude))


def is_excluded(path: Path | str, exclude: Iterable[str]) -> bool:
    """Return whether the name of a folder or revision fits one of some patterns of file names."""
    return any(fnmatchcase(Path(path).name, name) for name in exclude)


def unmeasured(folder: Path, pattern: re.Pattern[str], exclude: Collection[str] = ()) -> list[str]:
    """Return a line for each model in a folder that is neither excluded nor among its
    checkpoints."""
    measured, lines = checkpoints(folder, pattern, exclude), list[str]()
    steps = {step: path.name for path, step in measured.items() if step is not None}
    others = _others(folder, measured, exclude)
    if folder not in measured:
        others += [path for path in _stepped(folder, pattern, exclude) if path not in measured]
    for path in dict.fromkeys(others):
        mend = "; to measure it, move it to a subfolder checkpoint-STEP, or give --step"
        if (other := _twin(path, measured)) is not None:
            why, mend = f"its weights are those of {other.name}", ""
        elif path != folder and TEMPORARY.match(path.name):
            why = "its name is that of an interrupted save"
        elif not (path / CONFIG).is_file():
            why, mend = f"it has {formats.recognized(path) or f'no {CONFIG}'}", ""
        elif not _weights(path):
            why = f"its {SAFE} is not complete"
        elif not _is_final(path, folder):
            why = "its name has no step"
        else:
            name = steps.get(_final_step(path) or 0)
            why = f"{name} has its step, but other weights" if name else "no file has its step"
        lines.append(f"{path} is left out: {why}{mend}")
    return lines


def _is_final(path: Path, folder: Path) -> bool:
    is_named = FINAL.search(path.name) and not TEMPORARY.match(path.name)
    return path == folder or bool(is_named)


def _others(folder: Path, known: Collection[Path], exclude: Iterable[str]) -> list[Path]:
    """Return the other folders with a model: subfolders, and the folder itself."""
    own = [] if is_excluded(folder, exclude) else [folder]
    return [
        path
        for path in (*_subfolders(folder, exclude), *own)
        if path not in known and (path / CONFIG).is_file()
        if any(is_weights(file.name) for file in path.iterdir())
    ]


def _weights(folder: Path) -> list[Path]:
    try:
        return weight_files(folder)
    except Problem:
        return []


def _twin(folder: Path, others: Iterable[Path]) -> Path | None:
    """Return the first of other checkpoints whose weights have the same bytes, if any."""
    ours = _weights(folder)
    for other in others if ours else ():
        theirs = _weights(other)
        if [path.name for path in ours] == [path.name for path in theirs] and all(
            cmp(one, two, shallow=False) for one, two in zip(ours, theirs, strict=True)
        ):
            return other
    return None


def _final_step(folder: Path) -> int | None:
    """Return the step in trainer_state.json, or else the last step of its log."""
    known = state(folder)
    return known.step or max((step for step, _ in known.log), default=None)


def state(folder: Path) -> State:
    """Read trainer_state.json. Invalid numbers become None; entries of the log without a step are
    left out."""
    content = json_object(folder / STATE)
    logged = content.get("log_history")
    log = [
        (step, _number(entry.get("learning_rate")))
        for entry in (logged if isinstance(logged, list) else ())
        if isinstance(entry, dict) and (step := _count(entry.get("step"))) is not None
    ]
    tokens = _count(content.get("num_input_tokens_seen"))
    return State(_count(content.get("global_step")), tokens, log, "best_global_step" in content)


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


def files_of(folder: Path, *, has_code: bool = False) -> tuple[LocalFile, ...]:
    """Return the files of the checkpoint in a folder, without weights that transformers does not
    read; with its code if it `has_code`. Raises `Problem` if its weights are not complete
    safetensors."""
    has_weights = any((folder / name).is_file() for name in (SAFE, SAFE + INDEX))
    if not has_weights and (other := formats.recognized(folder)) is not None:
        raise Problem(f"{folder} has {other}")
    weights = {path.name for path in weight_files(folder)}
    if SAFE not in weights:
        weights.add(SAFE + INDEX)
    taken = (is_small, is_code) if has_code else (is_small,)
    return listed(folder, lambda name: name in weights or any(is_one(name) for is_one in taken))


def listed(folder: Path, is_one: Callable[[str], object]) -> tuple[LocalFile, ...]:
    """Return the files in a folder whose names satisfy `is_one`, by name."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file() and is_one(path.name))
    sizes = ((path.name, path.stat()) for path in files)
    return tuple(LocalFile(name, about.st_size, about.st_mtime_ns) for name, about in sizes)


def require_finite(folder: Path) -> None:
    """Raise `Problem` if the weights in a folder cannot be read, as while it is being deleted, or
    have a value that is not finite."""
    from safetensors import SafetensorError, safe_open

    for path in weight_files(folder):
        try:
            with safe_open(path, "pt") as file:
                for name in file.offset_keys():
                    if not file.get_tensor(name).isfinite().all():
                        raise Problem(f"{folder} has values that are not finite, in {name}")
        except (RuntimeError, SafetensorError) as error:
            raise Problem(f"{folder} cannot be read ({path.name}: {error})") from None


def about(
    place: object, config: Mapping[str, Any], tensors: Forms, code: Collection[str] | None = None
) -> dict[str, object]:
    """Return the fields of the model at a place (`train.architectures.given`), from its
    config.json, the forms of its tensors and the names of its files of code; None if none may run.
    Raises `Problem` if it is no causal language model of transformers."""
    if (why := formats.misfit(config, code)) is not None:
        raise Problem(f"{place} {why}")
    # A model of text and images has a part for text.
    config = {**config, **(config.get("text_config") or {})}
    shapes = {name: shape for name, (_, shape) in tensors.items()}
    column = 0 if config["model_type"] in TRANSPOSED else 1
    inputs = {
        shape[column]
        for name, shape in shapes.items()
        if len(shape) == 2 and name.endswith(".weight") and any(map(str.isdigit, name.split(".")))
        if not UNCALLED.search(name)
    }
    return {
        "name": config["model_type"],
        "context": next((config[key] for key in CONTEXT if key in config), UNLIMITED),
        "total": sum(map(prod, shapes.values())),
        "inputs": sorted(inputs),
        "vocabulary": config["vocab_size"],
    }
