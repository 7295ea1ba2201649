"""The stage for checkpoints in a local folder: its result has links to their files."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.hub.files import is_of_tokenizer
from ptq_dynamics.hub.folders import LocalFile
from ptq_dynamics.trajectories import trajectory


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
            os.symlink(path, target / name)
        context.progress.maybe(f"{number} of {len(settings.checkpoints)} checkpoints")
    checkpoints = [local.checkpoint for local in settings.checkpoints]
    return trajectory.facts(checkpoints, parameters=settings.parameters, seed=None)
