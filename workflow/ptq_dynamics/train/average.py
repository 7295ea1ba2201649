"""Weighted means of checkpoints, as a trajectory (see `averages`)."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.train import trajectory
from ptq_dynamics.train.settings import AverageSettings
from ptq_dynamics.train.trajectory import Checkpoint, Trajectory
from ptq_dynamics.train.weights import Weights


def run(context: Context[AverageSettings]) -> Mapping[str, Any]:
    """Write the means; the tokens of a mean are the most of its members, if all are known."""
    means, phase = context.settings.means, context.settings.phase
    sources = {label: Trajectory(manifests) for label, manifests in context.inputs.items()}
    points = list[Checkpoint]()
    for number, mean in enumerate(means, start=1):
        homes = [sources[member.source] for member in mean.members]
        found = [home.at([m.checkpoint])[0] for home, m in zip(homes, mean.members, strict=True)]
        folders = [home.folder(each) for home, each in zip(homes, found, strict=True)]
        write_mean(context.out / mean.id, folders, [each.weight for each in mean.members])
        seen = [each.tokens for each in found if each.tokens is not None]
        tokens = max(seen) if len(seen) == len(found) else None
        points.append(Checkpoint(mean.id, mean.step, tokens, None, phase))
        context.progress.maybe(f"{number} of {len(means)} averages")
    first = next(iter(sources.values()))
    return trajectory.facts(points, parameters=first.fact("parameters"), seed=first.fact("seed"))


def write_mean(folder: Path, members: Sequence[Path], weights: Sequence[float]) -> None:
    """Write the weighted mean of checkpoints, with the other files of the last one."""
    sources = [Weights(member) for member in members]
    for source in sources:
        if source.forms() != sources[-1].forms():
            raise Problem(
                f"tensors of {source.folder} and {members[-1]} differ in name, type or shape"
            )
    shutil.copytree(members[-1], folder, ignore=shutil.ignore_patterns("*.safetensors"))
    for file, names in sources[-1].files.items():
        means = {
            name: weighted_mean((source.tensors([name])[name] for source in sources), weights)
            for name in names
        }
        save_file(means, folder / file, metadata={"format": "pt"})


def weighted_mean(values: Iterable[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the weighted mean in the tensors' data type, summed in float64 (integers: rounded)."""
    total: Tensor | None = None
    for value, weight in zip(values, weights, strict=True):
        dtype, term = value.dtype, value.to(torch.float64, copy=True).mul_(weight)
        total = term if total is None else total.add_(term)
    assert total is not None
    total.div_(sum(weights))
    return (total if dtype.is_floating_point else total.round_()).to(dtype)
