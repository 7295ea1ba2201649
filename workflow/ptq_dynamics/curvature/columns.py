"""Saved checkpoints as the rows of a matrix that is read in blocks of columns: all of a figure
together outgrow memory (at scale paper 267 of 0.65 GB)."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.train.weights import Weights


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
        here = tuple(forms[name][1]) if name in forms else None
        if here != shape:
            has = "is not there" if here is None else f"has the shape {here}"
            raise Problem(f"{folder}: {name} {has}, but the first checkpoint has it with {shape}")
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
