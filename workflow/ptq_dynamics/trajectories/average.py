"""Weighted means of checkpoints, as a trajectory (see `averages`)."""

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from ptq_dynamics import models
from ptq_dynamics.base import needs
from ptq_dynamics.corpus import tokens
from ptq_dynamics.engine.context import Context
from ptq_dynamics.trajectories import trajectory
from ptq_dynamics.trajectories.averages import AverageSettings, ChoosingText
from ptq_dynamics.trajectories.ingredients import require_one_model
from ptq_dynamics.trajectories.trajectory import Checkpoint, Trajectory
from ptq_dynamics.trajectories.weights import Weights


def run(context: Context[AverageSettings]) -> Mapping[str, object]:
    """Write the means. The tokens of a mean are the most of its members, if all are known."""
    means, phase = context.settings.means, context.settings.phase
    labels = [label for label in context.inputs if label != needs.CORPUS]
    sources = {label: Trajectory(context.inputs[label]) for label in labels}
    points = list[Checkpoint]()
    for number, mean in enumerate(means, start=1):
        homes = [sources[member.source] for member in mean.members]
        members = [home.at([m.checkpoint])[0] for home, m in zip(homes, mean.members, strict=True)]
        folders = [home.folder(member) for home, member in zip(homes, members, strict=True)]
        weights = [member.weight for member in mean.members]
        if context.settings.choice is not None:
            taken = greedy(context, context.settings.choice, folders, weights)
            members, folders = [members[at] for at in taken], [folders[at] for at in taken]
            weights = [weights[at] for at in taken]
            context.progress.say(f"the soup has {len(taken)} of {len(mean.members)} members")
        write_mean(context.out / mean.id, folders, weights)
        seen = [member.tokens for member in members if member.tokens is not None]
        tokens = max(seen) if len(seen) == len(members) else None
        points.append(Checkpoint(mean.id, mean.step, tokens, None, phase))
        context.progress.maybe(f"{number} of {len(means)} averages")
    first = next(iter(sources.values()))
    return trajectory.facts(points, parameters=first.fact("parameters"), seed=first.fact("seed"))


def greedy(
    context: Context[AverageSettings],
    choice: ChoosingText,
    folders: list[Path],
    weights: list[float],
) -> list[int]:
    """Return the places of a greedy soup's members, the best first. No member raises the loss of
    the mean of the members before it (arXiv 2203.05482)."""
    blocks = tokens.blocks(context.input(needs.CORPUS), "probe", choice.context, choice.blocks)
    trial = context.scratch / "soup"

    def loss(places: list[int]) -> float:
        shutil.rmtree(trial, ignore_errors=True)
        write_mean(trial, [folders[at] for at in places], [weights[at] for at in places])
        model = models.load(trial, torch.float32)
        return float(models.block_losses(model, blocks, choice.batch).mean())

    taken, best = list[int](), math.inf
    for place in sorted(range(len(folders)), key=lambda at: loss([at])):
        if (value := loss([*taken, place])) <= best:
            taken, best = [*taken, place], value
    return taken


def write_mean(folder: Path, members: Sequence[Path], weights: Sequence[float]) -> None:
    """Write the weighted mean of checkpoints, and copy the other files of the last checkpoint.
    Raises `Problem` if they differ in more than weights."""
    sources = [Weights(member) for member in members]
    for source in sources[:-1]:
        require_one_model(source, sources[-1])
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
