"""Round weights to a grid, run llm-compressor, and compute errors of layers."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from inspect import signature
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import TRANSFORMERS_DYNAMIC_MODULE_NAME

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.models import inputs_device, linear_layers, require_eager
from ptq_dynamics.quantize.methods import Calibration

if TYPE_CHECKING:
    from datasets import Dataset
    from llmcompressor.modifiers import Modifier
    from torch.utils.data import DataLoader

MASK = "attention_mask"  # the parameter of blocks and their attention

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
    calibration: Calibration,
    dataset: "Dataset | DataLoader[dict[str, Tensor]]",
    recipe: "Modifier | list[Modifier]",
    **options: Any,  # of `oneshot`, each with its own type
) -> None:
    """Apply a recipe of llm-compressor to a model, in place and block by block. Raises `Problem` if
    the library cannot do so."""
    from llmcompressor import oneshot, reset_session
    from loguru import logger

    require_eager(model)
    blocks = {*(model._no_split_modules or ())} & {type(m).__name__ for m in model.modules()}
    if not blocks:
        # Otherwise it quantizes all blocks at once, each from inputs in full precision.
        blocks = {_block_class(model, layer) for layer in linear_layers(model)}
        options["sequential_targets"] = sorted(blocks)
    for package in ("llmcompressor", "compressed_tensors"):
        logger.disable(package)
    reset_session()
    # Without a processor, oneshot would load a tokenizer from the checkpoint.
    options |= {"processor": object(), "pipeline": "sequential", "log_dir": None}
    # It reads the configuration again, for which code that has run already may run.
    is_own = type(model).__module__.startswith(TRANSFORMERS_DYNAMIC_MODULE_NAME)
    options["trust_remote_code_model"] = is_own
    try:
        hooks = [
            module.register_forward_pre_hook(partial(_masked, mask), with_kwargs=True)
            for module, mask in _masks(model, calibration, blocks).items()
        ]
        oneshot(model=model, dataset=dataset, recipe=recipe, **options)
    except (Problem, OSError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        # llm-compressor raises errors of many types for models that it does not support.
        if "allocate memory" in str(error):
            raise
        cause = error.__cause__ or error  # an error of tracing names an address in memory
        reason = f"{type(cause).__name__}: {next(iter(str(cause).splitlines()), '')}"
        kind = model.config.model_type
        raise Problem(f"llm-compressor cannot quantize {kind} ({reason}); use rtn") from error
    for hook in hooks:
        hook.remove()


def _block_class(model: PreTrainedModel, layer: str) -> str:
    """Return the name of the class of the transformer block that contains a layer. The path of the
    block ends at its first number, or, where that is a list of modules, at the module inside."""
    parts = layer.split(".")
    end = next(place for place, part in enumerate(parts) if part.isdigit()) + 1
    while isinstance(model.get_submodule(".".join(parts[:end])), nn.ModuleList | nn.ModuleDict):
        end += 1
    return type(model.get_submodule(".".join(parts[:end]))).__name__


def _masks(
    model: PreTrainedModel, calibration: Calibration, blocks: Collection[str]
) -> dict[nn.Module, Tensor]:
    """Return the mask of each module that takes one, for the longest sequence. Raises `Problem` if
    no module of the classes `blocks` is called, or if a block runs more than once in a pass: its
    weights would be rounded again."""
    from llmcompressor.utils.helpers import calibration_forward_context

    masks, calls = dict[nn.Module, Tensor](), Counter[str]()

    def record(
        name: str, module: nn.Module, inputs: tuple[Tensor, ...], options: dict[str, object]
    ) -> None:
        given = signature(module.forward).bind_partial(*inputs, **options).arguments.get(MASK)
        if isinstance(given, Tensor) and given.ndim == 4:
            masks[module] = given
        calls[name] += type(module).__name__ in blocks

    hooks = [
        module.register_forward_pre_hook(partial(record, name), with_kwargs=True)
        for name, module in model.named_modules()
        if type(module).__name__ in blocks or MASK in signature(module.forward).parameters
    ]
    longest = max(calibration.batches(), key=lambda batch: batch.shape[1])[:1]
    with calibration_forward_context(model):
        model(longest.to(inputs_device(model)), use_cache=False)
    for hook in hooks:
        hook.remove()
    if not any(calls.values()):
        called = f"modules of {', '.join(sorted(blocks))}"
        raise Problem(f"this {model.config.model_type} calls no {called}; use rtn")
    for name, times in calls.items():
        if times > 1 and any(layer.startswith(f"{name}.") for layer in linear_layers(model)):
            raise Problem(
                f"{name} of this {model.config.model_type} runs {times} times in a pass, and would "
                f"be rounded {times} times; use rtn, or leave the model out"
            )
    return masks


def _masked(
    mask: Tensor, module: nn.Module, inputs: tuple[Tensor, ...], options: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]] | None:
    """Pass the mask to a module if llm-compressor 0.14 lost it while tracing. This concerns models
    that hold their mask function in a variable, such as Mistral, or that compute a mask of ones."""
    if signature(module.forward).bind_partial(*inputs, **options).arguments.get(MASK) is not None:
        return None
    first = next(value for value in (*inputs, *options.values()) if isinstance(value, Tensor))
    length = first.shape[1]
    given = mask[..., :length, :length].to(first.device)
    # auto-round records what is passed by name.
    place = [*signature(module.forward).parameters].index(MASK)
    if place < len(inputs):
        return (*inputs[:place], given, *inputs[place + 1 :]), options
    return inputs, {**options, MASK: given}


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
