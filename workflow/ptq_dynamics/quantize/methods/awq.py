"""AWQ (arXiv 2306.00978) through llm-compressor, without the paper's weight clipping.

AWQ scales the input columns of a layer up before rounding, and the layer before it down. The
checkpoint holds the scaled model and the scales, which errors of layers take back."""

from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PrivateAttr

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.quantize.methods import Calibrated, Calibration, Grouped, Quantized
from ptq_dynamics.train.architectures import Architecture

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from ptq_dynamics.models.packed import Grid

# By model_type, layers that take up scales and the layers after them. llm-compressor has the
# mappings of other architectures. No layer takes up scales after the xIELU of Apertus.
MAPPINGS = {
    "gpt_neox": [
        ("input_layernorm", ["attention.query_key_value"]),
        ("post_attention_layernorm", ["mlp.dense_h_to_4h"]),
    ],
    "apertus": [
        ("attention_layernorm", ["q_proj", "k_proj", "v_proj"]),
        ("v_proj", ["o_proj"]),
        ("feedforward_layernorm", ["up_proj"]),
    ],
    "gpt2": [("ln_1", ["attn.c_attn"]), ("ln_2", ["mlp.c_fc"])],
}


class Awq(Calibrated, Grouped):
    """AWQ, which tries `grid_points` exponents for every layer.
    With `duo_scaling`, scales depend on weights as well as on activations."""

    method: Literal["awq"]
    bits: Literal[2, 3, 4, 5, 6, 7, 8]
    symmetric: bool
    duo_scaling: bool
    grid_points: Annotated[int, Field(ge=4)]

    def refuses(self, model: Architecture) -> str | None:
        """Return why the norm before a layer cannot take up the layer's scales, or None."""
        if model.scaled_norms_first:
            return None
        return f"norms before the layers of {model.architecture} have no weights to take up scales"

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """Quantize the checkpoint in a folder."""
        import torch

        from ptq_dynamics import models
        from ptq_dynamics.quantize.storage import on_grids
        from ptq_dynamics.trajectories.weights import Weights

        model = models.load(folder, torch.float32)
        # AWQ scales norms and biases, too.
        small = [name for name, value in model.named_parameters() if value.ndim == 1]
        before = {name: value.float() for name, value in Weights(folder).tensors(small).items()}
        grids, scaling = self.smooth(model, calibration)
        # A weight that is offloaded is no parameter.
        after = {name: attrgetter(name)(model).detach() for name in before}
        changed = {name: v for name, v in after.items() if not torch.equal(v.cpu(), before[name])}
        return on_grids(grids, changed, scaling | {name: before[name] for name in changed})

    def smooth(
        self, model: "PreTrainedModel", calibration: Calibration
    ) -> "tuple[dict[str, Grid], dict[str, Tensor]]":
        """Quantize a model in place; return the grids and the scaling of its layers.
        Weights were multiplied by LAYER.rows, [out], and LAYER.columns, [in]."""
        import torch
        from compressed_tensors.quantization import forward_quantize
        from compressed_tensors.utils import patch_attr
        from llmcompressor.modifiers.quantization import QuantizationModifier
        from llmcompressor.modifiers.transform.awq import AWQMapping, AWQModifier
        from llmcompressor.modifiers.transform.awq.mappings import ResolvedMapping
        from llmcompressor.pipelines.cache import IntermediatesCache
        from torch.utils.data import DataLoader

        from ptq_dynamics import models
        from ptq_dynamics.quantize.layers import compress
        from ptq_dynamics.quantize.storage import grid_of, groups

        class Recorder(AWQModifier):
            """AWQ that records the scales of each layer."""

            _columns: dict[str, torch.Tensor] = PrivateAttr(default_factory=dict)
            _rows: dict[str, torch.Tensor] = PrivateAttr(default_factory=dict)

            def _compute_best_scale(
                self,
                mapping: ResolvedMapping,
                *arguments: Any,  # as the library has them
            ) -> torch.Tensor:
                scales = super()._compute_best_scale(mapping, *arguments)
                self._columns.update(dict.fromkeys(mapping.balance_names, scales))
                self._rows[mapping.smooth_name] = 1 / scales
                return scales

        kind = model.config.model_type
        mappings = [
            AWQMapping(f"re:.*{before}$", [f"re:.*{name}$" for name in after])
            for before, after in MAPPINGS.get(kind, ())
        ]
        awq = Recorder(
            mappings=mappings or None,
            offload_device=None,
            duo_scaling=self.duo_scaling,
            n_grid=self.grid_points,
        )
        # The library adds attributes to layers.
        layers: dict[str, Any] = {**models.linear_layers(model)}
        blocks = groups(self.bits, self.symmetric, self.resolved_group_size, layers)
        recipe = [awq, QuantizationModifier(config_groups=blocks)]
        # DataLoader also takes lists, unlike its type.
        batches: Any = [{"input_ids": batch} for batch in calibration.batches()]
        data = DataLoader(batches, batch_size=None)
        # Without a GPU, torch raises an error when the library pins memory.
        pin = IntermediatesCache.pin_memory if torch.cuda.is_available() else lambda *_: None
        with patch_attr(IntermediatesCache, "pin_memory", pin):
            # As in the paper, the search uses activations of the full-precision model.
            try:
                compress(model, calibration, data, recipe, propagate_error=False)
            except Problem as problem:
                if not isinstance(error := problem.__cause__, ValueError | AttributeError):
                    raise
                raise Problem(f"AWQ has no mapping for {kind} ({error}); leave it out") from error
        if not awq._columns:
            # llm-compressor takes names of Llama for those of unknown types.
            raise Problem(f"AWQ has no mapping for {kind}, and would only round; leave it out")
        if others := awq._columns.keys() - layers.keys():
            raise Problem(
                f"AWQ of {kind} scales {min(others)}, which is not quantized; leave it out"
            )
        grids: dict[str, Grid] = {}
        scaling: dict[str, Tensor] = {}
        for name, layer in layers.items():
            weight, scheme = layer.weight.detach(), layer.quantization_scheme.weights
            on_grid = forward_quantize(layer, weight, "weight", scheme)
            grids[name] = grid_of(name, layer, on_grid)
            # Layers after one norm share a tensor, and a file cannot hold a shared tensor.
            if (columns := awq._columns.get(name)) is not None:
                scaling[f"{name}.columns"] = columns.to(grids[name].scales, copy=True)
            if (rows := awq._rows.get(name)) is not None:
                # If a layer has more outputs than the next one has inputs, the last are scaled.
                padded = torch.cat([rows.new_ones(len(weight) - len(rows)), rows])
                scaling[f"{name}.rows"] = padded.to(grids[name].scales)
        return grids, scaling
