"""What all weight quantizers share: the grid, round-to-nearest on it, and the error of layers."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from ptq_dynamics.models import inputs_device, linear_layers

# Bytes of gram matrices held at once: all of a model with 1e9 parameters, a part of a larger one's.
GRAM_MEMORY = 8 << 30


@dataclass(frozen=True)
class LayerError:
    """Mean squared error of one quantized layer's weights and outputs, and both as a share of the
    mean square of the weights and outputs themselves."""

    weight_mse: float
    weight_relative: float
    output_mse: float
    output_relative: float


def round_to_nearest(weight: Tensor, bits: int, group_size: int) -> tuple[Tensor, Tensor]:
    """Codes (int8, [out, in]) and scales ([out, in / group_size]) of the nearest grid points.

    The symmetric grid of a group of columns has 2**bits levels from -2**(bits-1) to
    2**(bits-1) - 1; the largest magnitude maps to half the number of its steps, (2**bits - 1) / 2,
    as in llm-compressor.
    """
    largest = weight.unflatten(1, (-1, group_size)).abs().amax(dim=2)
    step = largest / ((2**bits - 1) / 2)
    scales = torch.where(step > 0, step, torch.ones_like(step))
    wide = scales.repeat_interleave(group_size, dim=1)
    codes = torch.round(weight / wide).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return codes.to(torch.int8), scales


def model_errors(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    quantized: Mapping[str, Tensor],
    batches: Sequence[Tensor],
    memory: int = GRAM_MEMORY,
) -> dict[str, LayerError]:
    """Errors of every layer of a model whose weights and quantized weights are given, in passes
    over the calibration set, int64 [batch, length] each, whose gram matrices take no more than
    `memory` bytes (but at least one layer's)."""
    layers = linear_layers(model)
    errors: dict[str, LayerError] = {}
    waiting = list(layers)
    while waiting:
        sizes = accumulate(4 * layers[name].in_features ** 2 for name in waiting)
        fitting = max(1, sum(size <= memory for size in sizes))
        taken, waiting = waiting[:fitting], waiting[fitting:]
        errors |= layer_errors(weights, quantized, gram_matrices(model, batches, taken))
    return errors


def gram_matrices(
    model: nn.Module, batches: Sequence[Tensor], names: Collection[str] | None = None
) -> dict[str, Tensor]:
    """Mean over calibration tokens, int64 [batch, length] each, of x xᵀ for the input x of every
    quantized layer, or of those named, float32 [in, in]; the layers' inputs are those of the
    full-precision model."""
    layers = linear_layers(model)
    if names is not None:
        layers = {name: layers[name] for name in names}
    sums: dict[str, Tensor] = {}

    def hook(name: str) -> Callable[..., None]:
        def add(_module: nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> None:
            x = inputs[0].reshape(-1, inputs[0].shape[-1]).float()
            if name not in sums:
                sums[name] = x.new_zeros(x.shape[-1], x.shape[-1])
            sums[name].addmm_(x.T, x)

        return add

    handles = [layer.register_forward_hook(hook(name)) for name, layer in layers.items()]
    device = inputs_device(model)
    with torch.no_grad():
        for batch in batches:
            model(batch.to(device), use_cache=False)
    for handle in handles:
        handle.remove()
    count = sum(batch.numel() for batch in batches)
    return {name: total / count for name, total in sums.items()}


def layer_errors(
    weights: Mapping[str, Tensor], quantized: Mapping[str, Tensor], grams: Mapping[str, Tensor]
) -> dict[str, LayerError]:
    """Errors of every layer: of its weights, ‖W−Ŵ‖², and of its outputs on the calibration set
    without their bias, tr((W−Ŵ) G (W−Ŵ)ᵀ), with the grams G of `gram_matrices`."""
    errors = {}
    for name, gram in grams.items():
        weight = weights[name].detach().to(gram)
        difference = weight - quantized[name].to(gram)
        in_weights = difference.square().sum()
        in_outputs, energy = (((each @ gram) * each).sum() for each in (difference, weight))
        errors[name] = LayerError(
            weight_mse=float(in_weights / weight.numel()),
            weight_relative=float(in_weights / weight.square().sum()),
            output_mse=float(in_outputs / len(weight)),
            output_relative=float(in_outputs / energy),
        )
    return errors
