"""GPTQ (arXiv 2210.17323) through llm-compressor."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ptq_dynamics.base.fields import Count, Rate
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.quantize.calibration import Calibration, Quantized
from ptq_dynamics.quantize.methods import Calibrated, Grouped

if TYPE_CHECKING:
    from torch import nn

    from ptq_dynamics.models.packed import Grid


class Gptq(Calibrated, Grouped):
    """`damping` is a share of the Hessian's mean diagonal, `block_size` in columns."""

    method: Literal["gptq"]
    bits: Literal[2, 3, 4, 5, 6, 7, 8]
    symmetric: bool
    activation_order: Literal["static"] | None
    damping: Rate
    block_size: Count

    @property
    def compared_bits(self) -> int | None:
        """Its bits."""
        return self.bits

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """One checkpoint."""
        import torch
        from llmcompressor.modifiers.gptq import GPTQModifier

        from ptq_dynamics import models
        from ptq_dynamics.quantize.compressor import compress, grid
        from ptq_dynamics.quantize.storage import on_grids

        # In a lower precision the library rounds scales after it has rounded weights to their grid.
        model = models.load(folder, torch.float32)
        names = list(models.linear_layers(model))
        modifier = GPTQModifier(
            config_groups=grid(self.bits, self.symmetric, self.size, names),
            actorder=self.activation_order,
            dampening_frac=self.damping,
            block_size=self.block_size,
            batched_quantization=None,
        )
        compress(
            model,
            calibration.dataset,
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
        return on_grids({name: _grid(name, layer, self.bits) for name, layer in layers.items()})


def _grid(name: str, layer: "nn.Module", bits: int) -> "Grid":
    """The grid that a layer's weights were rounded to."""
    import torch

    from ptq_dynamics.models.packed import Grid
    from ptq_dynamics.quantize.storage import exact

    weight = layer.get_parameter("weight").detach()
    scales = layer.get_parameter("weight_scale").detach()
    zeros = layer.get_parameter("weight_zero_point").detach()
    steps = torch.round(weight / scales.repeat_interleave(weight.shape[1] // scales.shape[1], 1))
    wide = zeros.repeat_interleave(weight.shape[1] // zeros.shape[1], dim=1)
    codes = (steps + wide).to(torch.int8)
    return exact(name, Grid(bits, codes, scales, zeros if zeros.any() else None), weight)
