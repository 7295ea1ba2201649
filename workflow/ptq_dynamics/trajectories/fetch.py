"""Fetch checkpoints of public families from the hub (section 3) as folders with safetensors,
configuration and tokenizer. No code of a repository runs."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from ptq_dynamics.base.checkpoints import CONFIG, INDEX, SAFE, forms, require_plain
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.hub.files import PICKLED, HubFile, Source, is_weights, obtain
from ptq_dynamics.trajectories import olmo_format, trajectory

RESUMABLE = True


class Revision(Strict):
    """A revision of a repository (the checkpoint's id), with commit and files from the lock."""

    checkpoint: trajectory.Checkpoint
    commit: str | None
    files: tuple[HubFile, ...]


class FetchSettings(Strict):
    """Revisions of one repository. With `convert`, pickled weights are read if there are no others;
    weights in a `format` that transformers does not read are converted."""

    repository: str
    revisions: tuple[Revision, ...]
    parameters: int
    convert: bool = False
    format: str | None = None


def run(context: Context[FetchSettings]) -> Mapping[str, object]:
    """Fetch every revision into the folder of its id."""
    settings = context.settings
    for number, revision in enumerate(settings.revisions, start=1):
        _Checkpoint(context, revision).fetch()
        context.progress.maybe(f"{number} of {len(settings.revisions)} checkpoints")
    return trajectory.facts(
        [revision.checkpoint for revision in settings.revisions],
        parameters=settings.parameters,
        seed=None,
        repository=settings.repository,
        commits={revision.checkpoint.id: revision.commit for revision in settings.revisions},
    )


def save_safely(source: Path, target: Path, names: Callable[[str], tuple[str, ...]]) -> None:
    """Save tensors, split into parts with `names`, as safetensors; raise `Problem` on others."""
    import torch
    from huggingface_hub import load_state_dict_from_file
    from safetensors.torch import save_file

    mmap = zipfile.is_zipfile(source)
    try:
        state = load_state_dict_from_file(source, "cpu", True, mmap, safe=False)
        if not all(isinstance(value, torch.Tensor) for value in state.values()):
            raise ValueError("a value is no tensor")
    # The libraries raise many kinds of errors on damaged or other files.
    except Exception as error:
        raise Problem(
            f"{source.name} is damaged, or holds more than a state dict of plain tensors "
            f"({type(error).__name__}); leave the revision out of the family"
        ) from error
    saved = dict[str, torch.Tensor]()
    for name, value in state.items():
        new = names(name)
        parts = value.chunk(len(new)) if len(new) > 1 else [value]
        # Copies, because tied weights are one tensor under two names.
        saved |= zip(new, (part.contiguous().clone() for part in parts), strict=True)
    save_file(saved, target, metadata={"format": "pt"})


class _Checkpoint:
    """One revision on its way from the hub to its folder."""

    def __init__(self, context: Context[FetchSettings], revision: Revision) -> None:
        settings, name = context.settings, revision.checkpoint.id
        if revision.commit is None:
            raise Problem(f"{settings.repository}@{name} is not in the lock; run ptq-dynamics lock")
        self._source = Source(settings.repository, name, revision.commit)
        self._files = {file.name: file for file in revision.files}
        self._out, self._scratch = context.out / name, context.scratch / name
        self._earlier = context.earlier / name if context.earlier else None
        self._is_pickled = any(name.endswith(".bin") for name in self._files)
        if self._is_pickled and not settings.convert:
            raise Problem(
                f"{self._source} has its weights as pickles only, which can run code; set "
                "convert: true in the family to read plain tensors and save safetensors"
            )
        is_olmo = settings.format == olmo_format.OLMO
        self._converts = self._is_pickled or is_olmo
        self._rewritten = olmo_format.REWRITTEN if is_olmo else {}
        self._names = olmo_format.names if is_olmo else lambda name: (name,)

    def fetch(self) -> None:
        """Obtain and convert all files. Raises `Problem` if one cannot be obtained, or the weights
        are quantized."""
        from huggingface_hub import get_local_safetensors_metadata

        self._out.mkdir(exist_ok=True)
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        for name in {CONFIG: None, **self._files}:
            if not is_weights(name):
                path = self._obtain(name)
                if name in self._rewritten:
                    self._write(name, self._rewritten[name](path.read_text(encoding="utf-8")))
        require_plain(self._source, self._out)
        for name in self._weights():
            target = self._out / safe_name(name)
            if self._converts and target.exists():
                continue
            path = self._obtain(name)
            if self._converts:
                saved = self._scratch / f"{target.name}.saved"
                save_safely(path, saved, self._names)
                os.replace(saved, target)
                path.unlink()
        require_plain(self._source, self._out, forms(get_local_safetensors_metadata(self._out)))

    def _weights(self) -> list[str]:
        # The files that transformers would read: one, or those that the index names.
        single = PICKLED if self._is_pickled else SAFE
        if single in self._files:
            return [single]
        index = json.loads(self._obtain(single + INDEX).read_text(encoding="utf-8"))
        places = index["weight_map"]
        if self._converts:
            saved = {new: safe_name(at) for name, at in places.items() for new in self._names(name)}
            self._write(SAFE + INDEX, {**index, "weight_map": saved})
        return sorted(set(places.values()))

    def _write(self, name: str, content: Mapping[str, object]) -> None:
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        (self._out / name).write_text(text, encoding="utf-8")

    def _obtain(self, name: str) -> Path:
        # A file that is converted lies in the scratch folder before.
        if (file := self._files.get(name)) is None:
            raise Problem(
                f"{self._source} has no {name} at commit {self._source.commit[:12]}, so the "
                "checkpoint is incomplete; leave it out of the family"
            )
        converted = name in self._rewritten or (self._converts and is_weights(name))
        target = (self._scratch if converted else self._out) / name
        if not file.matches(target):
            near = [self._earlier / name] if self._earlier else []
            obtain(self._source, file, target, near, self._scratch)
        return target


def safe_name(name: str) -> str:
    """Return the name of a file of weights as safetensors."""
    return name.replace("pytorch_model", "model", 1).replace(".bin", ".safetensors", 1)
