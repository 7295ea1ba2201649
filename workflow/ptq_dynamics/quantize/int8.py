"""LLM.int8 (arXiv 2208.07339) through bitsandbytes: weights and activations in 8 bits.

Activations are rounded while the model runs, so what is saved is bitsandbytes' own model.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitsandbytes.functional import int8_vectorwise_dequant
from torch import Tensor, nn
from transformers import BitsAndBytesConfig

from ptq_dynamics import models
from ptq_dynamics.engine.context import Context
from ptq_dynamics.quantize.method import Calibration, OnDemand, Quantized, run_method
from ptq_dynamics.quantize.settings import Int8, QuantizeSettings
from ptq_dynamics.quantize.storage import Own, outside_blocks


def run(context: Context[QuantizeSettings[Int8]]) -> Mapping[str, Any]:
    """Stage: quantize a trajectory's checkpoints with LLM.int8."""
    return run_method(context, quantize)


def quantize(folder: Path, _calibration: Calibration, settings: Int8) -> Quantized:
    """One checkpoint."""
    options = BitsAndBytesConfig(
        load_in_8bit=True,
        llm_int8_threshold=settings.threshold,
        llm_int8_skip_modules=outside_blocks(folder),
    )
    model = models.load(folder, quantization_config=options)
    # The library takes them from the layers when those first run.
    parts = {name: _parts(layer) for name, layer in models.linear_layers(model).items()}
    return Quantized(OnDemand(parts, lambda part: int8_vectorwise_dequant(*part)), Own(model))


def _parts(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Codes, int8 [out, in], and the largest magnitude of every row, [out]."""
    codes: Any = layer.weight
    return codes.data, codes.SCB
