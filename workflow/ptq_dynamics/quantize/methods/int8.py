"""LLM.int8 (arXiv 2208.07339) through bitsandbytes: weights and activations in 8 bits.

The model rounds activations while it runs, so the checkpoint is in the format of bitsandbytes."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ptq_dynamics.quantize.methods import Calibration, Quantized, Quantizer


class Int8(Quantizer):
    """LLM.int8; activation columns above `threshold` are not rounded, and 0 rounds all."""

    method: Literal["int8"]
    bits: Literal[8]
    threshold: Annotated[float, Field(ge=0)]

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """Quantize the checkpoint in a folder, without the calibration set."""
        import torch
        from bitsandbytes.functional import int8_vectorwise_dequant
        from torch import Tensor, nn
        from transformers import BitsAndBytesConfig

        from ptq_dynamics import models
        from ptq_dynamics.quantize.storage import OnDemand

        empty = models.without_weights(folder)
        linear = {name for name, layer in empty.named_modules() if isinstance(layer, nn.Linear)}
        options = BitsAndBytesConfig(
            load_in_8bit=True,
            llm_int8_threshold=self.threshold,
            llm_int8_skip_modules=sorted(linear - models.linear_layers(empty).keys()),
        )
        model = models.load(folder, torch.float32, quantization_config=options)
        # Codes, int8 [out, in], and the largest magnitude of every row, [out].
        parts = dict[str, tuple[Tensor, Tensor]]()
        for name, layer in models.linear_layers(model).items():
            if (largest := getattr(layer.weight, "SCB", None)) is not None:
                parts[name] = layer.weight.data, largest

        weights = OnDemand(parts, lambda name: int8_vectorwise_dequant(*parts[name]))
        return Quantized(weights, lambda _, target: model.save_pretrained(target))
