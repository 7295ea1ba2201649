"""Weight averages of checkpoints, as trajectories of their own (LAWA, section 4)."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ptq_dynamics import trajectory
from ptq_dynamics.manifest import Manifest
from ptq_dynamics.stage import Context
from ptq_dynamics.trajectory import Checkpoint


def run(context: Context) -> Mapping[str, Any]:
    """One averaged checkpoint for every one of `steps`: the uniform mean of the last `window`
    checkpoints of the input trajectory, one every `every` steps."""
    config = context.config
    source = context.input("trajectory")
    results = []
    for step in config["steps"]:
        members = [
            (source, step - config["every"] * back, 1.0)
            for back in reversed(range(config["window"]))
        ]
        results.append(_average(context.out, step, members))
        context.progress.maybe(f"{len(results)} of {len(config['steps'])} averages")
    facts = {name: source.facts[name] for name in ("parameters", "seed")}
    return trajectory.facts(results, **facts)


def _average(out: Path, step: int, members: Sequence[tuple[Manifest, int, float]]) -> Checkpoint:
    found = [(manifest, trajectory.at_steps(manifest, [at])[0]) for manifest, at, _ in members]
    folders = [manifest.subfolder(checkpoint.folder) for manifest, checkpoint in found]
    folder = out / trajectory.folder_name(step)
    others = shutil.ignore_patterns("*.safetensors")
    shutil.copytree(folders[-1], folder, ignore=others)
    for name in sorted(path.name for path in folders[-1].glob("*.safetensors")):
        states = (load_file(source / name) for source in folders)
        mean = weighted_mean(states, [weight for *_, weight in members])
        save_file(mean, folder / name, metadata={"format": "pt"})
    last = found[-1][1]
    return Checkpoint(folder.name, step, last.tokens, None, "average")


def weighted_mean(states: Any, weights: Sequence[float]) -> dict[str, Tensor]:
    """Weighted mean of state dicts (an iterable, read one at a time), summed in float64 and
    returned in each tensor's own dtype."""
    total: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for state, weight in zip(states, weights, strict=True):
        for name, value in state.items():
            dtypes[name] = value.dtype
            term = value.double() * weight
            total[name] = total[name].add_(term) if name in total else term
    scale = sum(weights)
    return {name: (value / scale).to(dtypes[name]) for name, value in total.items()}
