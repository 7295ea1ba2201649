"""NF4 of QLoRA (arXiv 2305.14314) through bitsandbytes: 4-bit quantiles of a normal distribution,
data-free."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bitsandbytes.functional import QuantState, dequantize_4bit, quantize_4bit
from torch import Tensor
from transformers import BitsAndBytesConfig

from ptq_dynamics import models
from ptq_dynamics.engine.context import Context
from ptq_dynamics.quantize.method import Calibration, OnDemand, Quantized, original, run_method
from ptq_dynamics.quantize.settings import Nf4, QuantizeSettings
from ptq_dynamics.quantize.storage import outside_blocks, replace


def run(context: Context[QuantizeSettings[Nf4]]) -> Mapping[str, Any]:
    """Stage: quantize a trajectory's checkpoints to NF4."""
    return run_method(context, quantize)


def quantize(folder: Path, _calibration: Calibration, settings: Nf4) -> Quantized:
    """One checkpoint."""
    about = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=settings.double_quantization,
        bnb_4bit_compute_dtype=torch.float32,
        llm_int8_skip_modules=outside_blocks(folder),
    )
    layers = original(folder, models.load(folder))
    rounded = {name: _round(weight, settings) for name, weight in layers.items()}
    weights = OnDemand(rounded, lambda parts: dequantize_4bit(*parts))
    return Quantized(weights, Blocks(rounded, about.to_dict()))


@dataclass(frozen=True)
class Blocks:
    """Codes and scales of layers, and what bitsandbytes says about them in config.json."""

    layers: Mapping[str, tuple[Tensor, QuantState]]
    about: Mapping[str, Any]

    def save(self, source: Path, target: Path) -> None:
        """In bitsandbytes' format; transformers loads it, whatever the block size."""
        layers = {
            name: {"weight": codes}
            | {f"weight.{part}": value for part, value in state.as_dict(packed=True).items()}
            for name, (codes, state) in self.layers.items()
        }
        replace(source, target, layers, self.about)


def _round(weight: Tensor, settings: Nf4) -> tuple[Tensor, QuantState]:
    codes, state = quantize_4bit(
        weight,
        blocksize=settings.block_size,
        compress_statistics=settings.double_quantization,
        quant_type="nf4",
    )
    return codes, state
