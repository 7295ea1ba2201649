"""Recipes of llm-compressor, such as AutoRound (arXiv 2309.05516), SmoothQuant (arXiv 2211.10438),
and Hadamard rotations before rounding (QuIP#, arXiv 2402.04396; QuaRot, arXiv 2404.00456).

Some models rotate or round activations at run time, so checkpoints have the library's format."""

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ptq_dynamics.base.fields import Count
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.quantize.methods import (
    AtMost,
    Calibrated,
    Calibration,
    Grouped,
    Quantized,
)

if TYPE_CHECKING:
    from llmcompressor.modifiers import Modifier
    from transformers import PreTrainedModel

Options = dict[str, Any]  # of one class of the library, which validates them


class Recipe(Calibrated, Grouped):
    """`modifiers` of llm-compressor with their options, in order. The last modifier rounds to the
    preset `scheme`. Scheme W4A16 has weights in 4 bits. `bits` and a `group_size` replace the
    preset's, but not the bits of floating-point weights."""

    by_layer: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ("auto-round",)  # a distribution behind llm-compressor

    method: Literal["recipe"]
    bits: Count
    scheme: str
    modifiers: tuple[dict[str, Options], ...]
    group_size: Count | AtMost | None = None  # type: ignore[assignment]

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """Quantize the checkpoint in a folder."""
        import torch
        from compressed_tensors.quantization import preset_name_to_scheme

        from ptq_dynamics import models
        from ptq_dynamics.quantize.layers import compress, sequences

        model = models.load(folder, torch.float32)
        layers = models.linear_layers(model)
        # llm-compressor does not round layers with a `forward` of their own, such as Falcon's.
        is_odd = any(
            hasattr(e, "transposed") or type(e).forward is not torch.nn.Linear.forward
            for e in layers.values()
        )
        if models.left_out(model, layers) or is_odd:
            raise Problem(f"no recipe fits layers of {model.config.model_type}; use another method")
        try:
            scheme = preset_name_to_scheme(self.scheme, [*layers])
            if scheme.weights.type == "int":
                scheme.weights.num_bits = self.bits
            for part in (scheme.weights, scheme.input_activations):
                if self.resolved_group_size and part is not None and part.group_size:
                    part.group_size = self.resolved_group_size
            *before, (last, options) = chain(*(modifier.items() for modifier in self.modifiers))
            steps = [_modifier(name, model, given) for name, given in before]
            groups = {"config_groups": {"blocks": scheme}}
            steps.append(_modifier(last, model, options | groups))
        except (KeyError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise Problem(f"llm-compressor does not take the recipe ({reason}); edit it") from error
        # AutoRound takes calibration sequences one by one.
        compress(model, calibration, recipe=steps, batch_size=1, **sequences(calibration))
        weights = dict.fromkeys(layers, torch.empty(0))
        return Quantized(weights, lambda _, to: model.save_pretrained(to, save_compressed=True))


def _modifier(name: str, model: "PreTrainedModel", options: Options) -> "Modifier":
    """Return a modifier for the linear layers of the blocks."""
    from llmcompressor.modifiers.autoround import AutoRoundModifier
    from llmcompressor.modifiers.factory import ModifierFactory

    from ptq_dynamics import models
    from ptq_dynamics.quantize.methods.awq import MAPPINGS

    class InFloat32(AutoRoundModifier):
        """AutoRound without its cast of the model to bfloat16, which no option prevents."""

        def _update_device_map_for_dp(self, ar_kwargs: dict[str, object]) -> None:
            super()._update_device_map_for_dp(ar_kwargs)
            ar_kwargs["amp"] = False

    if name == "AutoRoundModifier":
        return InFloat32(**options)
    if name == "QuIPModifier":
        options = {"targets": list(models.linear_layers(model)), **options}
    if name == "SmoothQuantModifier" and (pairs := MAPPINGS.get(model.config.model_type)):
        names = [([f"re:.*{name}$" for name in after], f"re:.*{norm}$") for norm, after in pairs]
        options = {"mappings": names, **options}
    ModifierFactory.refresh()
    return ModifierFactory.create(name, False, False, **options)
