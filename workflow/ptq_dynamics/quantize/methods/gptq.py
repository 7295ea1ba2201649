"""GPTQ (arXiv 2210.17323) through llm-compressor."""

from pathlib import Path
from typing import Literal

from ptq_dynamics.base.fields import Count, Rate
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.quantize.methods import Calibrated, Calibration, Grouped, Quantized


class Gptq(Calibrated, Grouped):
    """GPTQ; `damping` is relative to the Hessian's mean diagonal, `block_size` is in columns."""

    method: Literal["gptq"]
    bits: Literal[2, 3, 4, 5, 6, 7, 8]
    symmetric: bool
    activation_order: Literal["static"] | None
    damping: Rate
    block_size: Count

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """Quantize the checkpoint in a folder."""
        import torch
        from llmcompressor.modifiers.gptq import GPTQModifier

        from ptq_dynamics import models
        from ptq_dynamics.quantize import storage
        from ptq_dynamics.quantize.layers import compress, sequences

        model = models.load(folder, torch.float32)
        layers = models.linear_layers(model)
        modifier = GPTQModifier(
            config_groups=storage.groups(
                self.bits, self.symmetric, self.resolved_group_size, layers
            ),
            actorder=self.activation_order,
            dampening_frac=self.damping,
            block_size=self.block_size,
            batched_quantization=None,
        )
        options = sequences(calibration)
        compress(model, calibration, recipe=modifier, batch_size=calibration.together, **options)
        if modifier._rtn_fallback_module_names:
            raise Problem(
                f"the Hessian of {modifier._rtn_fallback_module_names} in {folder} cannot be "
                "inverted; raise damping, or calibration in the scale's file"
            )
        grids = {
            name: storage.grid_of(name, layer, layer.weight.detach())
            for name, layer in layers.items()
        }
        return storage.on_grids(grids)
