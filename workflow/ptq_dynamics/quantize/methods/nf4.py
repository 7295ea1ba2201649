"""NF4 of QLoRA (arXiv 2305.14314) through bitsandbytes: 4-bit quantiles of a normal distribution,
data-free."""

from pathlib import Path
from typing import Any, Literal

from ptq_dynamics.quantize.methods import Calibration, Quantized, Quantizer


class Nf4(Quantizer):
    """`block_size` in weights, in row order; `double_quantization` stores the blocks' scales in 8
    bits. Checkpoints are in bitsandbytes' format, which transformers loads."""

    method: Literal["nf4"]
    bits: Literal[4]
    block_size: Literal[32, 64, 128, 256, 512, 1024, 2048, 4096]
    double_quantization: bool

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """One checkpoint; the calibration set is not read."""
        import torch
        from bitsandbytes.functional import quantize_4bit
        from transformers import BitsAndBytesConfig

        from ptq_dynamics import models
        from ptq_dynamics.models.packed import Quantiles
        from ptq_dynamics.quantize import storage

        about = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=self.double_quantization,
            bnb_4bit_compute_dtype=torch.float32,
            llm_int8_skip_modules=storage.outside_blocks(folder),
        )
        options: Any = {"blocksize": self.block_size, "quant_type": "nf4"}
        options["compress_statistics"] = self.double_quantization
        layers = dict[str, Any]()
        for name, weight in storage.original(folder, models.load(folder)).items():
            codes, state = quantize_4bit(weight, **options)
            scales = {f"weight.{part}": each for part, each in state.as_dict(packed=True).items()}
            layers[name] = Quantiles({"weight": codes, **scales})

        def save(source: Path, target: Path) -> None:
            entries = {name: layer.parts for name, layer in layers.items()}
            storage.replace(source, target, entries, about.to_dict())

        return Quantized(storage.OnDemand(layers, Quantiles.weight), save)
