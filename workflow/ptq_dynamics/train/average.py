"""Weighted means of checkpoints, as a trajectory of their own (see `averages`)."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ptq_dynamics.engine.context import Context
from ptq_dynamics.train import trajectory
from ptq_dynamics.train.settings import AverageSettings
from ptq_dynamics.train.trajectory import Checkpoint, Trajectory
from ptq_dynamics.train.weights import Weights, require_alike


def run(context: Context[AverageSettings]) -> Mapping[str, Any]:
    """Write the means that the settings ask for; each has seen the tokens of the member that has
    seen most, where all say how many."""
    means, phase = context.settings.means, context.settings.phase
    sources = {label: Trajectory(manifests) for label, manifests in context.inputs.items()}
    points = list[Checkpoint]()
    for number, mean in enumerate(means, start=1):
        folders, found = list[Path](), list[Checkpoint]()
        for member in mean.members:
            source = sources[member.source]
            found += source.at([member.checkpoint])
            folders.append(source.folder(found[-1]))
        write_mean(context.out / mean.id, folders, [each.weight for each in mean.members])
        seen = [checkpoint.tokens for checkpoint in found if checkpoint.tokens is not None]
        tokens = max(seen) if len(seen) == len(found) else None
        points.append(Checkpoint(mean.id, mean.step, tokens, None, phase))
        context.progress.maybe(f"{number} of {len(means)} averages")
    first = next(iter(sources.values()))
    facts = {name: first.fact(name) for name in ("parameters", "seed")}
    return trajectory.facts(points, **facts)


def write_mean(folder: Path, members: Sequence[Path], weights: Sequence[float]) -> None:
    """Write the weighted mean of the checkpoints in the folders `members`, saved in files like
    those of the last one; one file of these is in memory at a time, whatever files the others have:
    a checkpoint in a single file is held whole, once.

    Raises `Problem` when they are not checkpoints of one model.
    """
    sources = [Weights(member) for member in members]
    require_alike(sources)
    shutil.copytree(members[-1], folder, ignore=shutil.ignore_patterns("*.safetensors"))
    for file, names in sources[-1].files.items():
        found = dict[str, Tensor]()
        for block in sources[-1].blocks(names):
            found |= weighted_mean((source.tensors(block) for source in sources), weights)
        save_file(found, folder / file, metadata={"format": "pt"})


def weighted_mean(
    states: Iterable[Mapping[str, Tensor]], weights: Sequence[float]
) -> dict[str, Tensor]:
    """Weighted mean of state dicts (read one at a time), summed in float64 and returned in each
    tensor's own dtype, rounded where that is of whole numbers."""
    total: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for state, weight in zip(states, weights, strict=True):
        for name, value in state.items():
            dtypes[name] = value.dtype
            term = value.to(torch.float64, copy=True).mul_(weight)
            total[name] = total[name].add_(term) if name in total else term
    scale = sum(weights)
    return {name: _rounded(value.div_(scale), dtypes[name]) for name, value in total.items()}


def _rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    return (value if dtype.is_floating_point else value.round_()).to(dtype)
