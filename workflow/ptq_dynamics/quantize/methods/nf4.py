"""NF4 of QLoRA (arXiv 2305.14314) through bitsandbytes: 4-bit quantiles of a normal distribution,
data-free."""

from pathlib import Path
from typing import Literal

from ptq_dynamics.quantize.calibration import Calibration, Quantized
from ptq_dynamics.quantize.methods import Quantizer


class Nf4(Quantizer):
    """`block_size` in weights, in row order; `double_quantization` stores the blocks' scales in 8
    bits."""

    method: Literal["nf4"]
    bits: Literal[4]
    block_size: Literal[32, 64, 128, 256, 512, 1024, 2048, 4096]
    double_quantization: bool

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """One checkpoint; the calibration set is not read. It is saved in bitsandbytes' format,
        which transformers loads, whatever the block size."""
        import torch
        from bitsandbytes.functional import dequantize_4bit, quantize_4bit
        from transformers import BitsAndBytesConfig

        from ptq_dynamics import models
        from ptq_dynamics.quantize.storage import (
            OnDemand,
            original,
            outside_blocks,
            replace,
        )

        about = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=self.double_quantization,
            bnb_4bit_compute_dtype=torch.float32,
            llm_int8_skip_modules=outside_blocks(folder),
        )
        rounded = {
            name: quantize_4bit(
                weight,
                blocksize=self.block_size,
                compress_statistics=self.double_quantization,
                quant_type="nf4",
            )
            for name, weight in original(folder, models.load(folder)).items()
        }

        def save(source: Path, target: Path) -> None:
            layers = {}
            for name, (codes, state) in rounded.items():
                scales = state.as_dict(packed=True)
                layers[name] = {"weight": codes}
                layers[name] |= {f"weight.{part}": value for part, value in scales.items()}
            replace(source, target, layers, about.to_dict())

        return Quantized(OnDemand(rounded, lambda parts: dequantize_4bit(*parts)), save)
