"""Trajectories: ordered checkpoints with step, tokens, learning rate and phase.

Runs that we train, averages of checkpoints and public families all publish a manifest whose facts
hold one; quantizers and evaluators take any of them.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ptq_dynamics.content import canonical
from ptq_dynamics.jobs.manifest import Manifest
from ptq_dynamics.problem import Problem


@dataclass(frozen=True)
class Checkpoint:
    """One point of a trajectory; `folder` is relative to the manifest, `lr` is the rate next in
    the schedule (None where there is none, as for an average)."""

    folder: str
    step: int
    tokens: int
    lr: float | None
    phase: str


def folder_name(step: int) -> str:
    """Folder of the checkpoint after `step` updates."""
    return f"step-{step:07d}"


def grid(first: int, last: int, every: int) -> list[int]:
    """Steps of a run's checkpoints: the multiples of `every` and its ends, but not step 0."""
    inner = range(first - first % every + every, last, every)
    return sorted({*([first] if first else []), *inner, last})


def facts(checkpoints: Iterable[Checkpoint], **others: Any) -> dict[str, Any]:
    """Manifest facts of a trajectory."""
    return {"checkpoints": [asdict(checkpoint) for checkpoint in checkpoints], **others}


def checkpoints(manifest: Manifest) -> list[Checkpoint]:
    """The trajectory that a manifest holds."""
    return [Checkpoint(**entry) for entry in manifest.facts["checkpoints"]]


def at_steps(manifest: Manifest, steps: Iterable[int]) -> list[Checkpoint]:
    """The checkpoints at `steps`; `Problem` when one is not in the trajectory."""
    known = {checkpoint.step: checkpoint for checkpoint in checkpoints(manifest)}
    try:
        return [known[step] for step in steps]
    except KeyError as missing:
        raise Problem(
            f"{manifest.path} has no checkpoint at step {missing} (it has {len(known)}, from "
            f"{min(known)} to {max(known)}); change the run or what is measured of it"
        ) from None


def digest(manifest: Manifest, checkpoint: Checkpoint) -> str:
    """Hex digest of a checkpoint's weights, from the recorded digests of its files."""
    weights: Mapping[str, str] = {
        Path(name).name: entry["sha256"]
        for name, entry in manifest.files.items()
        if name.startswith(f"{checkpoint.folder}/") and name.endswith(".safetensors")
    }
    return hashlib.sha256(canonical(weights).encode()).hexdigest()[:16]
