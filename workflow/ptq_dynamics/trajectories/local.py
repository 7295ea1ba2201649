"""The stage for checkpoints in a local folder: its result has links to their files.

Wrappers of torch, such as torch.compile, put prefixes before the names of tensors. A file with such
names is copied with the names that transformers reads."""

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ptq_dynamics.base.checkpoints import INDEX
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.hub.files import is_of_tokenizer
from ptq_dynamics.hub.folders import LocalFile
from ptq_dynamics.trajectories import trajectory

# Prefixes by torch.compile, FSDP, checkpointing of activations, and DistributedDataParallel.
WRAPPERS = re.compile(
    r"(?<![^.])_(orig_mod|fsdp_wrapped_module|checkpoint_wrapped_module)\.|^module\."
)


@dataclass(frozen=True)
class LocalCheckpoint:
    """A checkpoint in a `subfolder`, with its files at the time of planning."""

    checkpoint: trajectory.Checkpoint
    subfolder: str
    files: tuple[LocalFile, ...]


@dataclass(frozen=True)
class LocalSettings:
    """Checkpoints in a `folder`. `beside` has files of a tokenizer for those without one."""

    folder: str
    checkpoints: tuple[LocalCheckpoint, ...]
    beside: tuple[LocalFile, ...]
    parameters: int


def run(context: Context[LocalSettings]) -> Mapping[str, object]:
    """Link the files of every checkpoint into a folder; `Problem` without a tokenizer."""
    settings, folder = context.settings, Path(context.settings.folder).resolve()
    for number, local in enumerate(settings.checkpoints, start=1):
        source = folder / local.subfolder
        links = {file.name: source / file.name for file in local.files}
        if not any(map(is_of_tokenizer, links)):
            links |= {file.name: folder / file.name for file in settings.beside}
        if not any(map(is_of_tokenizer, links)):
            raise Problem(
                f"neither {source} nor {folder} has a tokenizer; save it there: "
                "tokenizer.save_pretrained"
            )
        target = context.out / local.checkpoint.id
        target.mkdir(exist_ok=True)
        for name, path in links.items():
            (target / name).unlink(missing_ok=True)
            if not _unwrapped(path, target / name):
                os.symlink(path, target / name)
        context.progress.maybe(f"{number} of {len(settings.checkpoints)} checkpoints")
    checkpoints = [local.checkpoint for local in settings.checkpoints]
    return trajectory.facts(checkpoints, parameters=settings.parameters, seed=None)


def _unwrapped(source: Path, target: Path) -> bool:
    """Copy weights, or their index, with plain names of tensors; return whether any had others."""
    if source.name.endswith(INDEX):
        index = json.loads(source.read_text(encoding="utf-8"))
        plain = {_plain(name): place for name, place in index["weight_map"].items()}
        if plain.keys() == index["weight_map"].keys():
            return False
        target.write_text(json.dumps({**index, "weight_map": plain}), encoding="utf-8")
    elif source.suffix != ".safetensors":
        return False
    else:
        with source.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            plain = {_plain(name): about for name, about in header.items()}
            if plain.keys() == header.keys():
                return False
            if len(plain) < len(header):
                raise Problem(f"{source} has a tensor with and without a prefix; save it again")
            data = json.dumps(plain).encode()
            with target.open("wb") as copy:
                copy.write(len(data).to_bytes(8, "little") + data)
                shutil.copyfileobj(file, copy)
    return True


def _plain(name: str) -> str:
    while (shorter := WRAPPERS.sub("", name)) != name:
        name = shorter
    return name
