"""Checkpoints in local folders, and their properties without loading the weights."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.hub.files import CONFIG, INDEX, SAFE, is_of_checkpoint

STATE = "trainer_state.json"  # beside a checkpoint of the Trainer of transformers
CONTEXT = ("max_position_embeddings", "n_positions", "n_ctx")  # its names in transformers
UNLIMITED = 1 << 20  # context length in tokens of a model without a limit
TRANSPOSED = frozenset({"gpt2", "openai-gpt", "imagegpt"})  # linear layers are saved [in, out]


@dataclass(frozen=True)
class LocalFile:
    """A file of a checkpoint; `size` in bytes, `changed` in ns."""

    name: str
    size: int
    changed: int


def checkpoints(folder: Path, pattern: re.Pattern[str]) -> dict[Path, int | None]:
    """Return the subfolders with a checkpoint and the steps that `pattern` finds in their names, or
    the folder itself without a step. Raises `Problem` if there is none, or a step occurs twice."""
    if not folder.is_dir():
        raise Problem(f"{folder} is no folder; correct the path")
    if not pattern.groups:
        raise Problem(f"--step {pattern.pattern!r} has no brackets around the step")
    found, is_one = dict[int, Path](), (folder / CONFIG).is_file()
    for path in sorted(each for each in folder.iterdir() if each.is_dir()):
        match = pattern.search(path.name)
        if match is None or not match[1].isdecimal():
            continue
        if not (path / CONFIG).is_file():
            # A checkpoint may have subfolders with the states of optimizers.
            if not is_one:
                raise Problem(f"{path} has no {CONFIG}; save the whole model, or move it away")
        elif (other := found.setdefault(int(match[1]), path)) is not path:
            raise Problem(f"{path} has the step of {other}; give --step another pattern")
    if not found and not is_one:
        why = "and no subfolder that has one is named as checkpoint-500"
        mend = r"name the folder of one run, or describe the names: --step 'my-(\d+)'"
        raise Problem(f"{folder} has no {CONFIG}, {why}; {mend}")
    return {found[step]: step for step in sorted(found)} or {folder: None}


def files(folder: Path) -> tuple[LocalFile, ...]:
    """Return the files of the checkpoint in a folder. Raises `Problem` if its weights are not
    complete safetensors."""
    found, needed = listed(folder, is_of_checkpoint), {SAFE}
    names = {each.name for each in found}
    if SAFE not in names and (index := folder / (SAFE + INDEX)).is_file():
        needed = {*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
    if lacking := sorted(needed - names):
        if any(folder.glob("*.bin")):
            raise Problem(
                f"{folder} has its weights in .bin files, which can run code when they are read; "
                'convert them: python -c "from transformers import AutoModelForCausalLM as M; '
                f"M.from_pretrained('{folder}').save_pretrained('{folder}')\""
            )
        raise Problem(f"{folder} lacks {lacking[0]}; save the whole model with save_pretrained")
    return found


def listed(folder: Path, is_one: Callable[[str], object]) -> tuple[LocalFile, ...]:
    """Return the files in a folder whose names satisfy `is_one`, by name."""
    every = (each for each in sorted(folder.iterdir()) if each.is_file() and is_one(each.name))
    found = ((each.name, each.stat()) for each in every)
    return tuple(LocalFile(name, about.st_size, about.st_mtime_ns) for name, about in found)


def about(config: Mapping[str, Any], metadata: Any) -> dict[str, Any]:
    """Return the fields of a model (`train.architectures.given`) and its vocabulary, from its
    config.json and the metadata of its safetensors that huggingface_hub reads."""
    # A model of text and images has a part for text.
    config = {**config, **(config.get("text_config") or {})}
    parts = metadata.files_metadata.values()
    shapes = {name: each.shape for part in parts for name, each in part.tensors.items()}
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
