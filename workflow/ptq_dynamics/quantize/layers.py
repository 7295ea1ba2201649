"""Round weights to a grid, run llm-compressor, and compute errors of layers."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import TRANSFORMERS_DYNAMIC_MODULE_NAME

from ptq_dynamics.models import inputs_device, linear_layers, require_eager
from ptq_dynamics.quantize.methods import Calibration

if TYPE_CHECKING:
    from datasets import Dataset
    from llmcompressor.modifiers import Modifier
    from torch.utils.data import DataLoader

# llm-compressor uses a deprecated function of torch, which would print a warning.
logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)


def round_to_nearest(weight: Tensor, bits: int, group_size: int) -> tuple[Tensor, Tensor]:
    """Return codes (int8, [out, in]) and scales ([out, in / group_size]) of the nearest points.

    Codes range from -2**(bits-1) to 2**(bits-1) - 1. As in llm-compressor, the largest magnitude
    in a group maps to (2**bits - 1) / 2.
    """
    largest = weight.unflatten(1, (-1, group_size)).abs().amax(dim=2)
    step = largest / ((2**bits - 1) / 2)
    scales = torch.where(step > 0, step, torch.ones_like(step))
    wide = scales.repeat_interleave(group_size, dim=1)
    codes = torch.round(weight / wide).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return codes.to(torch.int8), scales


class Sequences(TypedDict):
    """The options of llm-compressor that hold a calibration set."""

    dataset: "Dataset"
    num_calibration_samples: int
    max_seq_length: int
    shuffle_calibration_samples: bool


def sequences(calibration: Calibration) -> Sequences:
    """Return the options of llm-compressor that hold a calibration set. The library's sampler sets
    the order of sequences, of equal length too, and so the last digits of the Hessian."""
    from datasets import Dataset

    rows = [row.numpy() for batch in calibration.batches() for row in batch]
    masks = [row * 0 + 1 for row in rows]
    return {
        "dataset": Dataset.from_dict({"input_ids": rows, "attention_mask": masks}),
        "num_calibration_samples": len(rows),
        "max_seq_length": calibration.tokens.shape[1],
        "shuffle_calibration_samples": False,
    }


def compress(
    model: PreTrainedModel,
    dataset: "Dataset | DataLoader[dict[str, Tensor]]",
    recipe: "Modifier | list[Modifier]",
    **options: Any,  # of `oneshot`, each with its own type
) -> None:
    """Apply a recipe of llm-compressor to a model, in place and block by block."""
    from llmcompressor import oneshot, reset_session
    from loguru import logger

    require_eager(model)
    for package in ("llmcompressor", "compressed_tensors"):
        logger.disable(package)
    reset_session()
    # Without a processor, oneshot would load a tokenizer from the checkpoint.
    options |= {"processor": object(), "pipeline": "sequential", "log_dir": None}
    # It reads the configuration again, for which code that has run already may run.
    is_own = type(model).__module__.startswith(TRANSFORMERS_DYNAMIC_MODULE_NAME)
    options["trust_remote_code_model"] = is_own
    blocks = [block for block in model.modules() if hasattr(block, "self_attn")]
    hooks = [block.register_forward_pre_hook(_masked, with_kwargs=True) for block in blocks]
    oneshot(model=model, dataset=dataset, recipe=recipe, **options)
    for hook in hooks:
        hook.remove()


def _masked(
    block: Any, inputs: tuple[Tensor, ...], options: dict[str, object]
) -> tuple[tuple[Tensor, ...], dict[str, object]]:
    """Pass a causal mask to any block if llm-compressor 0.14 lost it while tracing.
    This concerns models that hold their mask function in a variable, such as Mistral and Phi-3."""
    from transformers import masking_utils

    if "attention_mask" not in options or options["attention_mask"] is not None:
        return inputs, options
    config = block.self_attn.config
    kind = "sliding_window_causal" if getattr(config, "sliding_window", None) else "causal"
    make = getattr(masking_utils, f"create_{kind}_mask")
    place = {"inputs_embeds": inputs[0], "attention_mask": None, "past_key_values": None}
    return inputs, {**options, "attention_mask": make(config, **place)}


def model_errors(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    quantized: Mapping[str, Tensor],
    batches: Sequence[Tensor],
    memory: int = 8 << 30,
) -> dict[str, dict[str, float]]:
    """Return the errors of every layer of a model, from its weights and its quantized weights.

    Each pass over the calibration set (int64 [batch, length]) collects gram matrices of at most
    `memory` bytes, or of one layer."""
    layers, errors = linear_layers(model), dict[str, dict[str, float]]()
    waiting = list(layers)
    while waiting:
        sizes = accumulate(4 * layers[name].in_features ** 2 for name in waiting)
        fitting = max(1, sum(size <= memory for size in sizes))
        taken, waiting = waiting[:fitting], waiting[fitting:]
        for name, gram in _grams(model, {name: layers[name] for name in taken}, batches).items():
            errors[name] = _error(weights[name].detach().to(gram), quantized[name].to(gram), gram)
    return errors


def _grams(
    model: nn.Module, layers: Mapping[str, nn.Module], batches: Sequence[Tensor]
) -> dict[str, Tensor]:
    """Return the mean of x xᵀ over the inputs x of each layer, float32 [in, in]."""
    sums: dict[str, Tensor] = {}

    def add(name: str, _module: nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> None:
        x = inputs[0].reshape(-1, inputs[0].shape[-1]).float()
        if name not in sums:
            sums[name] = x.new_zeros(x.shape[-1], x.shape[-1])
        sums[name].addmm_(x.T, x)

    handles = [layer.register_forward_hook(partial(add, name)) for name, layer in layers.items()]
    device = inputs_device(model)
    with torch.no_grad():
        for batch in batches:
            model(batch.to(device), use_cache=False)
    for handle in handles:
        handle.remove()
    count = sum(batch.numel() for batch in batches)
    return {name: total / count for name, total in sums.items()}


def _error(weight: Tensor, quantized: Tensor, gram: Tensor) -> dict[str, float]:
    """Return mean squared errors of a layer's weights and outputs, absolute and relative.
    The errors are ‖W−Ŵ‖² and tr((W−Ŵ) G (W−Ŵ)ᵀ) per element, with the G of `_grams`."""
    difference = weight - quantized
    in_weights = difference.square().sum()
    in_outputs, energy = (((w @ gram) * w).sum() for w in (difference, weight))
    return {
        "weight_mse": float(in_weights / weight.numel()),
        "weight_relative": float(in_weights / weight.square().sum()) if in_weights else 0.0,
        "output_mse": float(in_outputs / len(weight)),
        "output_relative": float(in_outputs / energy) if in_outputs else 0.0,
    }
