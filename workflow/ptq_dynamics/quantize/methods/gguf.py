"""The types of GGUF files that the package `gguf` quantizes, in blocks of 32 weights of a row.

Only weights are rounded. llama.cpp rounds activations as well, and has further types."""

from pathlib import Path
from typing import Literal

from ptq_dynamics.quantize.methods import Calibration, Quantized, Quantizer
from ptq_dynamics.train.architectures import Architecture


class Gguf(Quantizer):
    """Rounding to a GGUF type."""

    method: Literal["gguf"]
    bits: Literal[4, 5, 8]
    type: Literal["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"]
    group_size: Literal[32] = 32

    def refuses(self, model: Architecture) -> str | None:
        """Return which width of a model the blocks do not divide, or None."""
        wrong = [width for width in model.widths if width % self.group_size]
        return f"blocks of 32 do not divide the layer width {wrong[0]}" if wrong else None

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """Quantize the checkpoint in a folder, without the calibration set."""
        import gguf
        import torch

        from ptq_dynamics import models
        from ptq_dynamics.quantize import storage

        model, kind = models.load(folder), gguf.GGMLQuantizationType[self.type]
        weights = dict[str, torch.Tensor]()
        for name, weight in storage.original(folder, model).items():
            blocks = gguf.quantize(weight.float().cpu().numpy(), kind)
            weights[name] = torch.from_numpy(gguf.dequantize(blocks, kind))
        return storage.in_floats(weights, model)
