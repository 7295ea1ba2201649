"""Fetch checkpoints of public families from the hub (section 3).

A checkpoint becomes a folder with safetensors, configuration and tokenizer. Files in the hub's
cache or in the last result are linked. No code of a repository runs: pickled weights are read by
torch's reader of plain tensors, which refuses all else."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.hub.files import CONFIG, INDEX, PICKLED, SAFE, HubFile, Source, obtain
from ptq_dynamics.train import olmo_format, trajectory

RESUMABLE = True
# The parts of a tensor, by its name.
Parts = Callable[[str, Any], Mapping[str, Any]]


class Revision(Strict):
    """A checkpoint whose id is a revision of a repository, with the commit and the files that the
    lock has for it, if it has it."""

    checkpoint: trajectory.Checkpoint
    commit: str | None
    files: tuple[HubFile, ...]


class FetchSettings(Strict):
    """Revisions of one repository, of a model with so many `parameters`. With `convert`, weights
    that are there only as pickles are taken; those in a `format` that transformers does not read
    are saved in one that it does."""

    repository: str
    revisions: tuple[Revision, ...]
    parameters: int
    convert: bool = False
    format: str | None = None


def run(context: Context[FetchSettings]) -> Mapping[str, Any]:
    """Fetch every revision into the folder of its id."""
    settings = context.settings
    for number, revision in enumerate(settings.revisions, start=1):
        _Checkpoint(context, revision).fetch()
        context.progress.maybe(f"{number} of {len(settings.revisions)} checkpoints")
    checkpoints = [revision.checkpoint for revision in settings.revisions]
    return trajectory.facts(
        checkpoints,
        parameters=settings.parameters,
        seed=None,
        repository=settings.repository,
        commits={revision.checkpoint.id: revision.commit for revision in settings.revisions},
    )


def save_safely(source: Path, target: Path, parts: Parts | None) -> None:
    """Save weights as safetensors, to the bit, whole or the `parts` of each tensor by name;
    `Problem` when `source` holds anything else than tensors."""
    import torch
    from safetensors.torch import load_file, save_file

    try:
        if source.suffix == ".safetensors":
            state: Any = load_file(source)
        else:
            options: Any = {"map_location": "cpu", "mmap": zipfile.is_zipfile(source)}
            state = torch.load(source, weights_only=True, **options)
        if not all(isinstance(value, torch.Tensor) for value in state.values()):
            raise ValueError("a value is no tensor")
    # Damaged files, and those of other content, make the libraries raise all kinds.
    except Exception as error:
        raise Problem(
            f"{source.name} is damaged, or holds more than a state dict of plain tensors "
            f"({type(error).__name__}); leave the revision out of the family"
        ) from error
    if parts is not None:
        state = {new: part for old in state.items() for new, part in parts(*old).items()}
    # Tied weights are one tensor under two names, which the format does not have.
    plain = {name: value.contiguous().clone() for name, value in state.items()}
    save_file(plain, target, metadata={"format": "pt"})


class _Checkpoint:
    """One revision on its way from the hub to its folder."""

    def __init__(self, context: Context[FetchSettings], revision: Revision) -> None:
        settings, name = context.settings, revision.checkpoint.id
        if revision.commit is None:
            raise Problem(f"{settings.repository}@{name} is not in the lock; run ptq-dynamics lock")
        self._source = Source(settings.repository, name, revision.commit)
        self._files = {file.name: file for file in revision.files}
        self._out, self._scratch = context.out / name, context.scratch / name
        self._near = [context.earlier / name] if context.earlier else []
        self._is_pickled = any(name.endswith(".bin") for name in self._files)
        if self._is_pickled and not settings.convert:
            raise Problem(
                f"{self._source} has its weights as pickles only, which can run code; set "
                "convert: true in the family to read plain tensors and save safetensors"
            )
        self._is_olmo = settings.format == olmo_format.OLMO
        self._converts = self._is_pickled or self._is_olmo

    def fetch(self) -> None:
        """Have all its files; `Problem` when there is one that cannot be had."""
        self._out.mkdir(exist_ok=True)
        # What a download that was killed left is of no use to the next.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        self._known(CONFIG)
        weights = PICKLED if self._is_pickled else SAFE
        for name, file in self._files.items():
            if self._is_olmo and name in olmo_format.REWRITTEN:
                content = self._have(file, self._scratch).read_text(encoding="utf-8")
                self._write(name, olmo_format.REWRITTEN[name](content))
            elif not name.startswith(weights.partition(".")[0]):
                self._have(file)
        for file in map(self._known, self._weights(weights)):
            target = self._out / safe_name(file.name)
            if not self._converts:
                self._have(file)
            elif not target.exists():
                found = self._have(file, self._scratch)
                saved = self._scratch / f"{target.name}.saved"
                save_safely(found, saved, olmo_format.tensors if self._is_olmo else None)
                os.replace(saved, target)
                # One at a time: these are as large as the weights.
                found.unlink()

    def _weights(self, whole: str) -> Iterable[str]:
        """The files that transformers would read: one, or those that the index names."""
        if whole in self._files:
            return [whole]
        path = self._have(self._known(whole + INDEX), self._scratch if self._converts else None)
        index = json.loads(path.read_text(encoding="utf-8"))
        places = index["weight_map"]
        if self._converts:
            named = olmo_format.names if self._is_olmo else lambda name: (name,)
            saved = {new: safe_name(at) for name, at in places.items() for new in named(name)}
            self._write(SAFE + INDEX, {**index, "weight_map": saved})
        return sorted(set(places.values()))

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        (self._out / name).write_text(text, encoding="utf-8")

    def _have(self, file: HubFile, folder: Path | None = None) -> Path:
        target = (folder or self._out) / file.name
        if not file.matches(target):
            near = [place / file.name for place in self._near]
            obtain(self._source, file, target, near, self._scratch)
        return target

    def _known(self, name: str) -> HubFile:
        if name not in self._files:
            raise Problem(
                f"{self._source} has no {name} at commit {self._source.commit[:12]}, so it is no "
                "whole checkpoint; leave it out of the family"
            )
        return self._files[name]


def safe_name(name: str) -> str:
    """The name as safetensors of a file of weights, pickled or not."""
    return name.replace("pytorch_model", "model", 1).replace(".bin", ".safetensors", 1)
