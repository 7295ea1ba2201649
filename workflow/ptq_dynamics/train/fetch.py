"""Fetch checkpoints of public families from the hub (section 3).

Each becomes a folder as those of runs are: safetensors with their index, configuration and
tokenizer; no other file of a repository is downloaded, so none of its code runs.

Weights go into the job's own folder, not into the hub's cache. What the cache has already is linked
from it, and what the job's last result has, from that: then nothing lies on a disk twice.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.hub.download import Source, obtain
from ptq_dynamics.hub.files import CONFIG, INDEX, PICKLED, SAFE, TOKENIZER, HubFile, is_pickled
from ptq_dynamics.train import olmo_format, trajectory
from ptq_dynamics.train.convert import safe_index, safe_name, save_safely
from ptq_dynamics.train.trajectory import Checkpoint

RESUMABLE = True


class Revision(Strict):
    """A checkpoint whose id is a revision of a repository, with the commit and the files that the
    lock has for it, if it has it."""

    checkpoint: Checkpoint
    commit: str | None
    files: tuple[HubFile, ...]


class FetchSettings(Strict):
    """Revisions of one repository; `parameters` is how many a model of them has (None: those that
    its files hold are counted). With `convert`, weights that are there only as pickles are taken
    and saved as safetensors; where they are in a `format` that transformers does not read, they are
    saved in one that it does."""

    repository: str
    revisions: tuple[Revision, ...]
    parameters: int | None
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
        parameters=settings.parameters or count_parameters(context.out / checkpoints[-1].id),
        seed=None,
        repository=settings.repository,
        commits={revision.checkpoint.id: revision.commit for revision in settings.revisions},
    )


def count_parameters(folder: Path) -> int:
    """How many numbers the weights in a folder hold, by their headers."""
    from safetensors import safe_open

    total = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "numpy") as file:
            total += sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return total


class _Checkpoint:
    """One revision on its way from the hub to its folder."""

    def __init__(self, context: Context[FetchSettings], revision: Revision) -> None:
        self._settings, name = context.settings, revision.checkpoint.id
        repository = self._settings.repository
        if revision.commit is None:
            raise Problem(f"{repository}@{name} is not in the lock; run ptq-dynamics lock")
        self._source = Source(repository, name, revision.commit)
        self._files = {file.name: file for file in revision.files}
        self._out, self._scratch = context.out / name, context.scratch / name
        self._earlier = context.earlier / name if context.earlier else None
        # What is saved otherwise than it is there; the configuration as it is there.
        self._translates = self._settings.format == olmo_format.OLMO
        self._config: dict[str, Any] = {}

    def fetch(self) -> None:
        """Have all its files; `Problem` when there is one that cannot be had."""
        pickled = is_pickled(self._files.values())
        if pickled and not self._settings.convert:
            raise Problem(
                f"{self._source} has its weights as pickles only, which can run code; set convert: "
                "true of the family to have them read as plain tensors and saved as safetensors"
            )
        self._out.mkdir(exist_ok=True)
        # What a download that was killed left is of no use to the next.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        weights = PICKLED if pickled else SAFE
        config = self._known(CONFIG)
        for name, file in self._files.items():
            rewritten = self._translates and name in (CONFIG, TOKENIZER)
            if not (rewritten or name.startswith(weights.partition(".")[0])):
                self._have(file)
        if self._translates:
            self._config, translated = olmo_format.read(self._read(config))
            self._write(CONFIG, translated)
            if TOKENIZER in self._files:
                self._write(TOKENIZER, olmo_format.tokenizer(self._read(self._files[TOKENIZER])))
        for name in self._weights(weights):
            if pickled or self._translates:
                self._convert(self._known(name))
            else:
                self._have(self._known(name))

    def _weights(self, whole: str) -> Iterable[str]:
        """The files that transformers would read: one, or those that the index names; a repository
        may have others besides."""
        if whole in self._files:
            return [whole]
        index = self._known(whole + INDEX)
        if whole == SAFE and not self._translates:
            content = self._have(index).read_text(encoding="utf-8")
        else:
            content = self._read(index)
            named = olmo_format.names if self._translates else lambda name: (name,)
            (self._out / (SAFE + INDEX)).write_text(safe_index(content, named), encoding="utf-8")
        return sorted(set(json.loads(content)["weight_map"].values()))

    def _convert(self, file: HubFile) -> None:
        target = self._out / safe_name(file.name)
        if not target.exists():
            theirs, saved = self._have(file, self._scratch), self._scratch / f"{target.name}.saved"
            save_safely(theirs, saved, self._parts)
            os.replace(saved, target)
            # One at a time: these are as large as the weights.
            theirs.unlink()

    def _parts(self, name: str, value: Any) -> Mapping[str, Any]:
        if self._translates:
            return olmo_format.tensors(name, value, self._config)
        return {name: value}

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        (self._out / name).write_text(text, encoding="utf-8")

    def _read(self, file: HubFile) -> str:
        return self._have(file, self._scratch).read_text(encoding="utf-8")

    def _have(self, file: HubFile, folder: Path | None = None) -> Path:
        target = (folder or self._out) / file.name
        if not file.matches(target):
            near = [self._earlier / file.name] if self._earlier else []
            obtain(self._source, file, target, near, self._scratch)
        return target

    def _known(self, name: str) -> HubFile:
        if name not in self._files:
            raise Problem(
                f"{self._source} has no {name} at commit {self._source.commit[:12]}, so it is no "
                "whole checkpoint; leave it out of the family"
            )
        return self._files[name]
