"""NF4 of QLoRA (arXiv 2305.14314) through bitsandbytes: 4-bit quantiles of a normal distribution,
data-free."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from torch import Tensor

from ptq_dynamics import models
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.quantize.method import Calibration, Quantized, run_method


def run(context: Context) -> Mapping[str, Any]:
    """Stage: quantize a trajectory's checkpoints to NF4."""
    return run_method(context, quantize)


def quantize(
    folders: Sequence[Path], _calibration: Calibration, settings: Mapping[str, Any]
) -> Iterator[Quantized]:
    """Settings: block_size (weights, in row order), double_quantization (blocks' scales in 8
    bits)."""
    for folder in folders:
        layers = models.linear_layers(models.load(folder))
        yield Quantized(
            {name: _round(layer.weight.detach(), settings) for name, layer in layers.items()}
        )


def _round(weight: Tensor, settings: Mapping[str, Any]) -> Tensor:
    codes, state = quantize_4bit(
        weight,
        blocksize=settings["block_size"],
        compress_statistics=settings["double_quantization"],
        quant_type="nf4",
    )
    return dequantize_4bit(codes, state)
