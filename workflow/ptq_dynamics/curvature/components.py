"""Principal components of the weights along trajectories. Checkpoints are the rows of a matrix that
is read in blocks of columns: together they outgrow memory (at scale paper 267 of 0.65 GB)."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.curvature.plane import pca
from ptq_dynamics.curvature.settings import SCORES, ComponentsSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import SEED, STEP, TOKENS, TRAJECTORY
from ptq_dynamics.train.trajectory import Trajectory
from ptq_dynamics.train.weights import Weights

# Columns read at once, which decides the order of the sums: of 267 checkpoints they take 4.5 GB.
BLOCK = 1 << 22


def run(context: Context[ComponentsSettings]) -> Mapping[str, Any]:
    """Write the scores of every checkpoint; facts: the explained share of the variance."""
    rows, folders = [], []
    for path in context.settings.paths:
        source = Trajectory(context.inputs[path.label])
        for checkpoint in source.at(path.checkpoints):
            folders.append(source.folder(checkpoint))
            whose = {TRAJECTORY: path.trajectory, SEED: path.seed}
            rows.append({**whose, STEP: checkpoint.step, TOKENS: checkpoint.tokens})
        context.progress.maybe(f"{len(rows)} checkpoints found")
    scores, explained = pca(blocks(folders, BLOCK), context.settings.components)
    named = {f"pc{number}": column.tolist() for number, column in enumerate(scores.T, 1)}
    pd.DataFrame(rows).assign(**named).to_csv(context.out / SCORES, index=False)
    return {"explained": explained.tolist()}


def blocks(folders: Sequence[Path], width: int) -> Iterator[Tensor]:
    """The parameters of n checkpoints of one architecture, in the files' own dtype, in blocks of
    `width` columns, [n, width], in the order of `plane.flatten(dict(model.named_parameters()))` of
    the loaded model: buffers are left out, tied weights count once."""
    shapes = _shapes(folders[0])
    end = sum(map(prod, shapes.values()))
    for start in range(0, end, width):
        stop = min(start + width, end)
        yield torch.stack([_row(folder, shapes, start, stop) for folder in folders])


def _row(folder: Path, shapes: Mapping[str, tuple[int, ...]], start: int, stop: int) -> Tensor:
    weights, found, end = Weights(folder), [], 0
    forms = weights.forms()
    for name, shape in shapes.items():
        begin, end = end, end + prod(shape)
        first, last = max(start, begin) - begin, min(stop, end) - begin
        if first >= last:
            continue
        if name not in forms or tuple(forms[name][1]) != shape:
            raise Problem(f"{folder} has no {name} of shape {shape}, as the first checkpoint has")
        width = prod(shape[1:])
        top = first // width
        rows = weights.rows(name, top, -(-last // width))
        found.append(rows.flatten()[first - top * width : last - top * width])
    return torch.cat(found)


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The parameters of a saved model by their names in files, as `plane.flatten` sorts them."""
    model = models.without_weights(folder)
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    # Names in files are older than those in memory: GPT-NeoX's head is embed_out, once lm_head.
    converted = revert_weight_conversion(model, parameters)
    stored = {id(value): name for name, value in converted.items()}
    ordered = sorted(parameters.items())
    return {stored.get(id(value), name): tuple(value.shape) for name, value in ordered}
