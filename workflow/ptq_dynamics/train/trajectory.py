"""Trajectories, whoever made them: ordered checkpoints with step, tokens, learning rate and phase,
as facts of manifests."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import canonical
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.manifest import Manifest

CURVE = "curve.csv"  # of a run: its training curve


@dataclass(frozen=True)
class Checkpoint:
    """One point of a trajectory: `id` is unique in it and names the checkpoint's folder, which
    holds the tokenizer too; a merged model has no step and need have no tokens, and steps may
    repeat; `lr` is the rate next in the schedule (None where there is none, as for an average)."""

    id: str
    step: int | None
    tokens: int | None
    lr: float | None
    phase: str


def step_id(step: int) -> str:
    """Id of the checkpoint after `step` updates of a run."""
    return f"step-{step:07d}"


def facts(checkpoints: Iterable[Checkpoint], **others: Any) -> dict[str, Any]:
    """Manifest facts of a trajectory, or of a part of one."""
    return {"checkpoints": [asdict(checkpoint) for checkpoint in checkpoints], **others}


class Trajectory:
    """A trajectory as the manifests of its parts hold it, in their order."""

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        self._manifests = manifests
        self._homes: dict[str, tuple[Checkpoint, Manifest]] = {}
        for manifest in manifests:
            for entry in manifest.facts["checkpoints"]:
                checkpoint = Checkpoint(**entry)
                self._homes.setdefault(checkpoint.id, (checkpoint, manifest))

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """All its checkpoints."""
        return [checkpoint for checkpoint, _ in self._homes.values()]

    def fact(self, name: str) -> Any:
        """What the manifests say of the trajectory as a whole, such as its parameters."""
        return self._manifests[0].facts[name]

    def at(self, ids: Iterable[str]) -> list[Checkpoint]:
        """The checkpoints with these ids; `Problem` when it has not one of them."""
        try:
            return [self._homes[name][0] for name in ids]
        except KeyError as missing:
            known = ", ".join(self._homes)
            raise Problem(f"{self._manifests[0].path} has no {missing}, but {known}") from None

    def folder(self, checkpoint: Checkpoint) -> Path:
        """Folder of a checkpoint, after checking its files."""
        return self._homes[checkpoint.id][1].subfolder(checkpoint.id)

    def digest(self, checkpoint: Checkpoint) -> str:
        """Hex digest of a checkpoint's weights, from the recorded digests of its files."""
        files, start = self._homes[checkpoint.id][1].files, f"{checkpoint.id}/"
        own = {name: entry["sha256"] for name, entry in files.items() if name.startswith(start)}
        return weights_digest({Path(name).name: digest for name, digest in own.items()})


def weights_digest(files: Mapping[str, str]) -> str:
    """Hex digest of the weights among the files of a checkpoint, from their digests by name."""
    weights = {name: digest for name, digest in files.items() if name.endswith(".safetensors")}
    return hashlib.sha256(canonical(weights).encode()).hexdigest()[:16]
