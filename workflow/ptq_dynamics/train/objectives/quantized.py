"""Quantization-aware training: the loss at rounded weights."""

import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ptq_dynamics.base.fields import Count
from ptq_dynamics.train.objectives.language import OnText, summed_loss

if TYPE_CHECKING:
    from torch import Tensor, nn


class QuantizationAware(OnText):
    """Cross-entropy at weights that are rounded to the grid of GPTQ and RTN. Gradients pass through
    the rounding unchanged (arXiv 1308.3432). The group size is the largest number of columns, up
    to `at_most`, that divides every width of the model."""

    kind: Literal["quantization-aware"]
    bits: Annotated[int, Field(ge=2, le=8)]
    at_most: Count

    def loss(self, model: "nn.Module", rows: "Tensor", before: "nn.Module | None") -> "Tensor":
        """Sum the losses of rows, int64 [rows, context + 1], at the rounded weights."""
        import torch

        from ptq_dynamics import models

        layers = models.linear_layers(model)
        common = math.gcd(*(layer.in_features for layer in layers.values()))
        columns = max(size for size in range(1, self.at_most + 1) if common % size == 0)
        rounded = {
            f"{n}.weight": fake(layer.weight, self.bits, columns) for n, layer in layers.items()
        }
        options = {"use_cache": False}
        output = torch.func.functional_call(model, rounded, (rows[:, :-1],), options)
        return summed_loss(output.logits, rows[:, 1:])


def fake(weight: "Tensor", bits: int, columns: int) -> "Tensor":
    """Return the nearest points of the symmetric grid, with a scale for `columns` weights of a row.
    The largest magnitude of a group is (2**bits - 1) / 2 steps, as in llm-compressor."""
    import torch

    groups, highest = weight.reshape(-1, columns), 2 ** (bits - 1) - 1
    with torch.no_grad():
        step = groups.abs().amax(dim=1, keepdim=True) / ((2**bits - 1) / 2)
        step = torch.where(step > 0, step, torch.ones_like(step))
        points = torch.round(groups / step).clamp(-highest - 1, highest) * step
    return (points + (groups - groups.detach())).view_as(weight)
