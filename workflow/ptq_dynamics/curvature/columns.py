"""Saved checkpoints as the rows of a matrix that is read in blocks of columns: all of a figure
together outgrow memory (at scale paper 267 of 0.65 GB)."""

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.train.weights import Weights


class Part(NamedTuple):
    """One parameter in the matrix: its name in the files, its shape, and its columns."""

    stored: str
    shape: tuple[int, ...]
    start: int
    stop: int


def blocks(folders: Sequence[Path], width: int) -> Iterator[Tensor]:
    """The parameters of n checkpoints of one architecture, in the files' own dtype, in blocks of
    `width` columns, [n, width], in the order of `plane.flatten(dict(model.named_parameters()))` of
    the loaded model: buffers are left out, tied weights count once."""
    parts = _parts(folders[0])
    for start in range(0, parts[-1].stop, width):
        stop = min(start + width, parts[-1].stop)
        yield torch.stack([_row(folder, parts, start, stop) for folder in folders])


def _row(folder: Path, parts: Sequence[Part], start: int, stop: int) -> Tensor:
    weights, found = Weights(folder), []
    forms = weights.forms()
    for part in parts:
        first, last = max(start - part.start, 0), min(stop, part.stop) - part.start
        if first >= last:
            continue
        shape = tuple(forms[part.stored][1]) if part.stored in forms else None
        if shape != part.shape:
            has = "is not there" if shape is None else f"has the shape {shape}"
            raise Problem(
                f"{folder}: {part.stored} {has}, but the first checkpoint has it with {part.shape}"
            )
        width = prod(part.shape[1:])
        top = first // width
        rows = weights.rows(part.stored, top, -(-last // width))
        found.append(rows.flatten()[first - top * width : last - top * width])
    return torch.cat(found)


def _parts(folder: Path) -> list[Part]:
    """The parameters of a saved model by name in memory, as `plane.flatten` sorts them."""
    model = models.without_weights(folder)
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    # Names in files are older than those in memory: GPT-NeoX's head is embed_out, once lm_head.
    converted = revert_weight_conversion(model, parameters)
    stored = {id(value): name for name, value in converted.items()}
    parts, start = [], 0
    for name, value in sorted(parameters.items()):
        stop = start + value.numel()
        parts.append(Part(stored.get(id(value), name), tuple(value.shape), start, stop))
        start = stop
    return parts
