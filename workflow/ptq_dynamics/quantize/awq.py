"""AWQ (arXiv 2306.00978) through llm-compressor, without the paper's weight clipping.

AWQ scales the input columns of a layer up before rounding, and the layer before it down. What is
saved is that model, packed, and beside it the scales; errors of layers are those of the rounded
weights scaled back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.quantization import forward_quantize
from compressed_tensors.quantization import quantize as quantize_weight
from compressed_tensors.utils import patch_attr
from llmcompressor.modifiers.quantization import QuantizationModifier
from llmcompressor.modifiers.transform.awq import AWQMapping, AWQModifier
from llmcompressor.modifiers.transform.awq.mappings import ResolvedMapping
from llmcompressor.pipelines.cache import IntermediatesCache
from pydantic import PrivateAttr
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel

from ptq_dynamics import models
from ptq_dynamics.engine.context import Context
from ptq_dynamics.models.packed import Grid
from ptq_dynamics.quantize.compressor import compress, grid
from ptq_dynamics.quantize.layers import check_groups
from ptq_dynamics.quantize.method import Calibration, OnDemand, Quantized, run_method
from ptq_dynamics.quantize.settings import Awq, QuantizeSettings
from ptq_dynamics.quantize.storage import Packed, exact
from ptq_dynamics.train.weights import Weights

# By model_type; llm-compressor knows those of other architectures.
MAPPINGS = {
    "gpt_neox": [
        AWQMapping("re:.*input_layernorm$", ["re:.*attention.query_key_value$"]),
        AWQMapping("re:.*post_attention_layernorm$", ["re:.*mlp.dense_h_to_4h$"]),
    ],
    # Nothing takes up scales of what comes after its xIELU.
    "apertus": [
        AWQMapping("re:.*attention_layernorm$", [f"re:.*{part}_proj$" for part in "qkv"]),
        AWQMapping("re:.*v_proj$", ["re:.*o_proj$"]),
        AWQMapping("re:.*feedforward_layernorm$", ["re:.*up_proj$"]),
    ],
}


@dataclass(frozen=True)
class Smoothed:
    """A layer on its grid, and the scales its rows, [out], and columns, [in], had been multiplied
    by before rounding, where they had."""

    grid: Grid
    rows: Tensor | None
    columns: Tensor | None

    def weight(self) -> Tensor:
        """The rounded weights for the inputs and outputs of the original layer, [out, in]."""
        weight = self.grid.weight()
        if self.rows is not None:
            weight = weight / self.rows[:, None]
        return weight if self.columns is None else weight / self.columns


def run(context: Context[QuantizeSettings[Awq]]) -> Mapping[str, Any]:
    """Stage: quantize a trajectory's checkpoints with AWQ."""
    return run_method(context, quantize)


def quantize(folder: Path, calibration: Calibration, settings: Awq) -> Quantized:
    """One checkpoint."""
    model = models.load(folder)
    check_groups(model, settings.group_size)
    # Beside the layers, AWQ scales norms and biases.
    small = [name for name, value in model.named_parameters() if value.ndim == 1]
    before = Weights(folder).tensors(small)
    layers = smooth(model, calibration, settings)
    after = {name: model.get_parameter(name).detach() for name in before}
    changed = {name: v for name, v in after.items() if not torch.equal(v.cpu(), before[name])}
    scaling = {name: before[name] for name in changed}
    for name, layer in layers.items():
        parts = {f"{name}.rows": layer.rows, f"{name}.columns": layer.columns}
        scaling |= {part: scales for part, scales in parts.items() if scales is not None}
    grids = {name: layer.grid for name, layer in layers.items()}
    return Quantized(OnDemand(layers, Smoothed.weight), Packed(grids, changed, scaling))


def smooth(model: PreTrainedModel, calibration: Calibration, settings: Awq) -> dict[str, Smoothed]:
    """Turn a model into llm-compressor's AWQ model, in place; its quantized layers by name."""
    layers = models.linear_layers(model)
    awq = _Recorder(
        mappings=MAPPINGS.get(model.config.model_type),
        duo_scaling=settings.duo_scaling,
        n_grid=settings.grid_points,
        offload_device=None,
    )
    batches = [{"input_ids": batch} for batch in calibration.batches()]
    data: Any = DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
    with patch_attr(IntermediatesCache, "pin_memory", _pin_memory):
        # Scales are searched on the full-precision model's activations, as in the paper; the
        # library's "basic" pipeline would search them with quantization left on.
        rounding = QuantizationModifier(
            config_groups=grid(settings.bits, settings.symmetric, settings.group_size, layers)
        )
        compress(model, data, [awq, rounding], propagate_error=False)
    return {name: _smoothed(name, layer, awq, settings.bits) for name, layer in layers.items()}


class _Recorder(AWQModifier):
    """AWQ that keeps the scales it applied, by the names of the layers it applied them to."""

    _columns: dict[str, Tensor] = PrivateAttr(default_factory=dict)
    _rows: dict[str, Tensor] = PrivateAttr(default_factory=dict)

    def _compute_best_scale(self, mapping: ResolvedMapping, *arguments: Any) -> Tensor:
        scales: Tensor = super()._compute_best_scale(mapping, *arguments)
        self._columns.update(dict.fromkeys(mapping.balance_names, scales))
        self._rows[mapping.smooth_name] = 1 / scales
        return scales


def _smoothed(name: str, layer: nn.Linear, awq: _Recorder, bits: int) -> Smoothed:
    scheme: Any = layer.quantization_scheme
    weight, scales, zeros = (
        layer.get_parameter(part).detach()
        for part in ("weight", "weight_scale", "weight_zero_point")
    )
    codes = quantize_weight(weight, scales, zeros, scheme.weights, torch.int8)
    grid = Grid(bits, codes, scales, None if scheme.weights.symmetric else zeros)
    exact(name, grid, forward_quantize(layer, weight, "weight", scheme.weights))
    rows, columns = awq._rows.get(name), awq._columns.get(name)
    if rows is not None:
        # Of a layer with more outputs than the next has inputs, the last ones are scaled.
        rows = torch.cat([rows.new_ones(len(weight) - len(rows)), rows])
    # Layers after one norm share theirs, which no file can hold twice.
    parts = (None if part is None else part.to(scales, copy=True) for part in (rows, columns))
    return Smoothed(grid, *parts)


_pin_memory_on_cuda = IntermediatesCache.pin_memory


def _pin_memory(cache: IntermediatesCache, *arguments: Any) -> None:
    # llm-compressor pins memory without asking whether there is a GPU; torch then raises.
    if torch.cuda.is_available():
        _pin_memory_on_cuda(cache, *arguments)
