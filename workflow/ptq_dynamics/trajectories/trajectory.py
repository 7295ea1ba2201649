"""Trajectories: ordered checkpoints, as facts of manifests."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ptq_dynamics.base.content import canonical
from ptq_dynamics.engine.manifest import Manifest

CURVE = "curve.csv"  # the training curve of a run; its column lr is the rate of the last update


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a trajectory. `id` is its folder and unique in the trajectory; steps may
    repeat. `lr` is the rate of the next update; None where no schedule exists."""

    id: str
    step: int | None
    tokens: int | None
    lr: float | None
    phase: str


class Point(NamedTuple):
    """A planned checkpoint: its id, unique in its trajectory, and its step, if any."""

    id: str
    step: int | None


def step_id(step: int) -> str:
    """Return the id of the checkpoint after `step` updates of a run."""
    return f"step-{step:07d}"


def facts(checkpoints: Iterable[Checkpoint], **others: object) -> dict[str, object]:
    """Return the manifest facts of a trajectory, or of a part of one."""
    return {"checkpoints": [asdict(checkpoint) for checkpoint in checkpoints], **others}


class Trajectory:
    """A trajectory read from the manifests of its parts, in their order."""

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        self._manifests = manifests
        self._homes: dict[str, tuple[Checkpoint, Manifest]] = {}
        for manifest in manifests:
            for entry in manifest.facts["checkpoints"]:
                self._homes.setdefault(entry["id"], (Checkpoint(**entry), manifest))

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints."""
        return [checkpoint for checkpoint, _ in self._homes.values()]

    def fact(self, name: str) -> Any:
        """Return a fact of the whole trajectory (JSON), such as its number of parameters."""
        return self._manifests[0].facts[name]

    def at(self, ids: Iterable[str]) -> list[Checkpoint]:
        """Return the checkpoints with these ids."""
        return [self._homes[name][0] for name in ids]

    def folder(self, checkpoint: Checkpoint) -> Path:
        """Return the folder of a checkpoint after verification of its files."""
        return self._homes[checkpoint.id][1].subfolder(checkpoint.id)

    def digest(self, checkpoint: Checkpoint) -> str:
        """Return the digest of a checkpoint's weights from the digests in the manifest."""
        files, start = self._homes[checkpoint.id][1].files, f"{checkpoint.id}/"
        own = {name: entry["sha256"] for name, entry in files.items() if name.startswith(start)}
        return weights_digest({Path(name).name: digest for name, digest in own.items()})


def weights_digest(files: Mapping[str, str]) -> str:
    """Return the hex digest of a checkpoint's weights from the digests of its files by name."""
    weights = {name: digest for name, digest in files.items() if name.endswith(".safetensors")}
    return hashlib.sha256(canonical(weights).encode()).hexdigest()[:16]
