"""GPTQ (arXiv 2210.17323) through llm-compressor."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from llmcompressor.modifiers.gptq import GPTQModifier
from torch import nn

from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.models.packed import Grid
from ptq_dynamics.quantize.compressor import compress, grid
from ptq_dynamics.quantize.layers import check_groups
from ptq_dynamics.quantize.method import Calibration, Quantized, run_method
from ptq_dynamics.quantize.settings import Gptq, QuantizeSettings
from ptq_dynamics.quantize.storage import exact


def run(context: Context[QuantizeSettings[Gptq]]) -> Mapping[str, Any]:
    """Stage: quantize a trajectory's checkpoints with GPTQ."""
    return run_method(context, quantize)


def quantize(folder: Path, calibration: Calibration, settings: Gptq) -> Quantized:
    """One checkpoint."""
    # In a lower precision the library rounds scales after it has rounded weights to their grid.
    model = models.load(folder, torch.float32)
    check_groups(model, settings.group_size)
    names = list(models.linear_layers(model))
    modifier = _modifier(settings, names)
    compress(
        model,
        _dataset(calibration),
        modifier,
        batch_size=calibration.together,
        num_calibration_samples=len(calibration.tokens),
        max_seq_length=calibration.tokens.shape[1],
        shuffle_calibration_samples=False,
    )
    if modifier._rtn_fallback_module_names:
        raise Problem(
            f"the Hessian of {modifier._rtn_fallback_module_names} in {folder} cannot be "
            "inverted; raise damping, or calibration in the scale's file"
        )
    layers = {name: model.get_submodule(name) for name in names}
    return Quantized.on({name: _grid(name, layer, settings.bits) for name, layer in layers.items()})


def _grid(name: str, layer: nn.Module, bits: int) -> Grid:
    """The grid that a layer's weights were rounded to."""
    weight = layer.get_parameter("weight").detach()
    scales = layer.get_parameter("weight_scale").detach()
    zeros = layer.get_parameter("weight_zero_point").detach()
    steps = torch.round(weight / scales.repeat_interleave(weight.shape[1] // scales.shape[1], 1))
    wide = zeros.repeat_interleave(weight.shape[1] // zeros.shape[1], dim=1)
    codes = (steps + wide).to(torch.int8)
    return exact(name, Grid(bits, codes, scales, zeros if zeros.any() else None), weight)


@cache
def _dataset(calibration: Calibration) -> Dataset:
    rows = [row for batch in calibration.batches() for row in batch]
    ones = [torch.ones_like(row) for row in rows]
    columns = {"input_ids": rows, "attention_mask": ones}
    return Dataset.from_dict(
        {name: [v.numpy() for v in values] for name, values in columns.items()}
    )


def _modifier(settings: Gptq, layers: Sequence[str]) -> GPTQModifier:
    return GPTQModifier(
        config_groups=grid(settings.bits, settings.symmetric, settings.group_size, layers),
        actorder=settings.activation_order,
        dampening_frac=settings.damping,
        block_size=settings.block_size,
        batched_quantization=None,
    )
