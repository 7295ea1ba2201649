"""Principal components of the weights along trajectories, which together exceed memory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from ptq_dynamics import models
from ptq_dynamics.curvature.settings import SCORES, ComponentsSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import SEED, STEP, TOKENS, TRAJECTORY
from ptq_dynamics.trajectories.trajectory import Trajectory
from ptq_dynamics.trajectories.weights import Weights

# Columns of a block, which decide the order of sums; 267 checkpoints take 4.5 GB.
BLOCK = 1 << 22


def run(context: Context[ComponentsSettings]) -> Mapping[str, object]:
    """Write the scores of all checkpoints; return the explained share of the variance."""
    rows, folders = [], []
    for path in context.settings.paths:
        source = Trajectory(context.inputs[path.label])
        for checkpoint in source.at(path.checkpoints):
            folders.append(source.folder(checkpoint))
            whose = {TRAJECTORY: path.trajectory, SEED: path.seed}
            rows.append({**whose, STEP: checkpoint.step, TOKENS: checkpoint.tokens})
        context.progress.maybe(f"{len(rows)} checkpoints found")
    scores, explained = pca(column_blocks(folders, BLOCK), context.settings.components)
    named = {f"pc{number}": column.tolist() for number, column in enumerate(scores.T, 1)}
    pd.DataFrame(rows).assign(**named).to_csv(context.out / SCORES, index=False)
    return {"explained": explained.tolist()}


def pca(blocks: Iterable[Tensor], components: int) -> tuple[Tensor, Tensor]:
    """Return scores [n, components] and explained shares of the variance. `blocks` are columns of
    the matrix [n, P], and the n x n Gram matrix is summed in float64."""
    gram = torch.zeros((), dtype=torch.float64)
    for block in blocks:
        centred = block.to(torch.float64, copy=True)
        centred -= centred.mean(dim=0)
        gram = gram + centred @ centred.T
    total = gram.trace().item()
    values, vectors = torch.linalg.eigh(gram)
    values, vectors = values.flip(0)[:components].clamp(min=0), vectors.flip(1)[:, :components]
    scores = vectors * values.sqrt()
    largest = scores.gather(0, scores.abs().argmax(dim=0, keepdim=True))
    return scores * torch.where(largest < 0, -1.0, 1.0), values / total


def column_blocks(folders: Sequence[Path], width: int) -> Iterator[Tensor]:
    """Yield parameters in blocks of columns, [n, width], in the order of `landscape.flatten`."""
    shapes = _shapes(folders[0])
    end = sum(map(prod, shapes.values()))
    for start in range(0, end, width):
        stop = min(start + width, end)
        yield torch.stack([_row(folder, shapes, start, stop) for folder in folders])


def _row(folder: Path, shapes: Mapping[str, tuple[int, ...]], start: int, stop: int) -> Tensor:
    weights, parts, end = Weights(folder), [], 0
    for name, shape in shapes.items():
        begin, end = end, end + prod(shape)
        first, last = max(start, begin) - begin, min(stop, end) - begin
        if first >= last:
            continue
        width = prod(shape[1:])
        top = first // width
        rows = weights.rows(name, top, -(-last // width))
        parts.append(rows.flatten()[first - top * width : last - top * width])
    return torch.cat(parts)


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    # Shapes of parameters by their names in files, in the order of their names in memory.
    model = models.without_weights(folder)
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    # transformers keeps older names in files: the head of GPT-NeoX is embed_out, not lm_head.
    converted = revert_weight_conversion(model, parameters)
    stored = {id(value): name for name, value in converted.items()}
    ordered = sorted(parameters.items())
    return {stored.get(id(value), name): tuple(value.shape) for name, value in ordered}
