"""Weighted averages of checkpoints, as trajectories of their own.

LAWA (section 4): the uniform mean of the last checkpoints along one trajectory, equal steps apart;
last: of the last measured ones, whatever their steps. Tails: several means at the end of one,
uniform ones or with weights that fall with age. A line: the points between the last checkpoints of
two trajectories. A merge: one weighted mean of the last checkpoints of several.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.train import trajectory
from ptq_dynamics.train.average_settings import (
    MERGED,
    AverageSettings,
    LastSettings,
    LawaSettings,
    LineSettings,
    MergeSettings,
    TailsSettings,
)
from ptq_dynamics.train.trajectory import Checkpoint, Trajectory, step_id
from ptq_dynamics.train.weights import Weights, require_alike

# A checkpoint of a trajectory, and its weight in the average.
Member = tuple[Trajectory, Checkpoint, float]


def run(context: Context[AverageSettings]) -> Mapping[str, Any]:
    """Write the averaged checkpoints that the settings ask for."""
    sources = {label: Trajectory(manifests) for label, manifests in context.inputs.items()}
    match context.settings:
        case LawaSettings() as lawa:
            points = list(_lawa(sources["trajectory"], lawa))
        case TailsSettings() as tails:
            points = list(_tails(sources["trajectory"], tails))
        case LineSettings() as line:
            points = list(_line(sources["start"], sources["end"], line))
        case MergeSettings() as merge:
            points = list(_merge(sources, merge))
        case LastSettings() as last:
            points = list(_last(sources["trajectory"], last))
    for number, (checkpoint, members) in enumerate(points, start=1):
        folders = [source.folder(member) for source, member, _ in members]
        write_mean(context.out / checkpoint.id, folders, [weight for *_, weight in members])
        context.progress.maybe(f"{number} of {len(points)} averages")
    source = next(iter(sources.values()))
    facts = {name: source.fact(name) for name in ("parameters", "seed")}
    return trajectory.facts((checkpoint for checkpoint, _ in points), **facts)


def _lawa(source: Trajectory, lawa: LawaSettings) -> Iterator[tuple[Checkpoint, list[Member]]]:
    """At every checkpoint asked for, the last `window` ones, one every `every` steps."""
    by_step = {checkpoint.step: checkpoint for checkpoint in source.checkpoints}
    for last in source.at(lawa.checkpoints):
        if last.step is None:
            raise Problem(f"checkpoint {last.id} has no step, so none lies before it")
        steps = [last.step - lawa.every * back for back in reversed(range(lawa.window))]
        missing = [step for step in steps if step not in by_step]
        if missing:
            raise Problem(
                f"the average at {last.id} needs a checkpoint at step {missing[0]}, which the "
                "trajectory has not; change every or window of the average"
            )
        members = [(source, by_step[step], 1.0) for step in steps]
        yield replace(last, lr=None, phase="average"), members


def _tails(
    source: Trajectory, settings: TailsSettings
) -> Iterator[tuple[Checkpoint, list[Member]]]:
    """Every mean, in the place of the source's last checkpoint."""
    by_step = {checkpoint.step: checkpoint for checkpoint in source.checkpoints}
    for tail in settings.tails:
        place = replace(by_step[tail.steps[0]], id=tail.id, lr=None, phase="average")
        weighted = zip(tail.steps, tail.weights, strict=True)
        yield place, [(source, by_step[step], weight) for step, weight in weighted]


def _line(
    start: Trajectory, end: Trajectory, line: LineSettings
) -> Iterator[tuple[Checkpoint, list[Member]]]:
    """At point i of n, the share i / (n - 1) of the way from the start's last checkpoint to the
    end's."""
    sources, ends = (start, end), (start.checkpoints[-1], end.checkpoints[-1])
    for number in line.points:
        share = number / (line.of - 1)
        weights = [1 - share, share]
        members = list(zip(sources, ends, weights, strict=True))
        tokens = ends[1].tokens
        yield Checkpoint(step_id(number), number, tokens, None, "interpolation"), members


def _merge(
    sources: Mapping[str, Trajectory], merge: MergeSettings
) -> Iterator[tuple[Checkpoint, list[Member]]]:
    """One mean, which lies at the end of what is in it."""
    members = []
    for ingredient in merge.ingredients:
        source = sources[ingredient.source]
        (checkpoint,) = source.at([ingredient.checkpoint])
        members.append((source, checkpoint, ingredient.weight))
    seen = [checkpoint.tokens for _, checkpoint, _ in members if checkpoint.tokens is not None]
    tokens = max(seen) if len(seen) == len(members) else None
    yield Checkpoint(MERGED, None, tokens, None, "average"), members


def _last(source: Trajectory, last: LastSettings) -> Iterator[tuple[Checkpoint, list[Member]]]:
    """Every mean, in the place of the last checkpoint in it."""
    for window in last.windows:
        found = source.at(window)
        members = [(source, checkpoint, 1.0) for checkpoint in found]
        yield replace(found[-1], lr=None, phase="average"), members


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
        save_file(_mean_of(sources, weights, names), folder / file, metadata={"format": "pt"})


def _mean_of(
    sources: Sequence[Weights], weights: Sequence[float], names: Iterable[str]
) -> dict[str, Tensor]:
    found = dict[str, Tensor]()
    for block in sources[-1].blocks(names):
        found |= weighted_mean((source.tensors(block) for source in sources), weights)
    return found


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
