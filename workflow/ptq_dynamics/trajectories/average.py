"""Weighted averages of checkpoints, as trajectories of their own.

LAWA (section 4): the uniform mean of the last checkpoints along one run. A line: the points between
the last checkpoints of two trajectories.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ptq_dynamics.jobs.context import Context
from ptq_dynamics.jobs.manifest import Manifest
from ptq_dynamics.trajectories import trajectory
from ptq_dynamics.trajectories.trajectory import Checkpoint

# A checkpoint of a trajectory, and its weight in the average.
Member = tuple[Manifest, Checkpoint, float]


def run(context: Context) -> Mapping[str, Any]:
    """One averaged checkpoint for every one of `steps`."""
    config, averages = context.settings, []
    points = _lawa(context) if config["kind"] == "lawa" else _line(context)
    for checkpoint, members in points:
        averages.append(checkpoint)
        _average(context.out / checkpoint.folder, members)
        context.progress.maybe(f"{len(averages)} of {len(config['steps'])} averages")
    source = next(iter(context.inputs.values()))[0]
    facts = {name: source.facts[name] for name in ("parameters", "seed")}
    return trajectory.facts(averages, **facts)


def _lawa(context: Context) -> Iterator[tuple[Checkpoint, list[Member]]]:
    """At every step, the last `window` checkpoints of the trajectory, one every `every` steps."""
    config, source = context.settings, context.input("trajectory")
    for step in config["steps"]:
        steps = [step - config["every"] * back for back in reversed(range(config["window"]))]
        found = trajectory.at_steps(source, steps)
        members = [(source, checkpoint, 1.0) for checkpoint in found]
        yield replace(found[-1], lr=None, phase="average"), members


def _line(context: Context) -> Iterator[tuple[Checkpoint, list[Member]]]:
    """At step i of n, the share i / (n - 1) of the way from the start's last checkpoint to the
    end's."""
    sources = [context.input(label) for label in ("start", "end")]
    ends = [trajectory.checkpoints(source)[-1] for source in sources]
    steps = context.settings["steps"]
    for step in steps:
        share = step / steps[-1]
        weights = [1 - share, share]
        members = list(zip(sources, ends, weights, strict=True))
        folder = trajectory.folder_name(step)
        yield Checkpoint(folder, step, ends[1].tokens, None, "interpolation"), members


def _average(folder: Path, members: Sequence[Member]) -> None:
    sources = [manifest.subfolder(checkpoint.folder) for manifest, checkpoint, _ in members]
    shutil.copytree(sources[-1], folder, ignore=shutil.ignore_patterns("*.safetensors"))
    for name in sorted(path.name for path in sources[-1].glob("*.safetensors")):
        states = (load_file(source / name) for source in sources)
        mean = weighted_mean(states, [weight for *_, weight in members])
        save_file(mean, folder / name, metadata={"format": "pt"})


def weighted_mean(
    states: Iterable[Mapping[str, Tensor]], weights: Sequence[float]
) -> dict[str, Tensor]:
    """Weighted mean of state dicts (read one at a time), summed in float64 and returned in each
    tensor's own dtype."""
    total: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for state, weight in zip(states, weights, strict=True):
        for name, value in state.items():
            dtypes[name] = value.dtype
            term = value.double() * weight
            total[name] = total[name].add_(term) if name in total else term
    scale = sum(weights)
    return {name: (value / scale).to(dtypes[name]) for name, value in total.items()}
