"""Models saved in checkpoint folders."""

import logging
import shutil
from collections.abc import Container, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from contextvars import ContextVar
from functools import partial
from inspect import signature
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from accelerate.utils import get_max_memory
from compressed_tensors.compressors.nvfp4 import base as nvfp4
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.utils import patch_attr
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.pytorch_utils import Conv1D

from ptq_dynamics.base.checkpoints import ROUTER, UNCALLED, weight_files
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.models import packed
from ptq_dynamics.models.unused import unused

# bitsandbytes logs a warning for each call of a layer, since it casts inputs to float16.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)

# Errors of files without a model.
UNREADABLE = (OSError, ValueError, RuntimeError, KeyError, SafetensorError, StrictDataclassError)
BESIDE = 1.25  # memory of a model with its activations, relative to its weights
# Names of the number of experts in configurations of transformers.
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CACHE = "use_cache"  # the option that jobs give to every model
# Under its default, sdpa, transformers ignores this entry of config.json, and the mask of Doge.
SOFTCAP = "attn_logit_softcapping"
RESCALING = "rescale_every"  # an option of RWKV against overflow in float16
OFFLOADED = "offloaded"  # folder of weights that fit into no memory


def device() -> torch.device:
    """Return the first GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def inputs_device(model: nn.Module) -> torch.device:
    """Return the device for the inputs of a model, also of one that is spread over devices."""
    place = next(model.parameters()).device
    return device() if place.type == "meta" else place


def has_code(folder: Path) -> bool:
    """Return whether the folder of a result has code of the model, which then runs. Jobs put code
    there only where `--trust-remote-code` was given."""
    return any(folder.glob("*.py"))


def _own(folder: Path) -> dict[str, bool]:
    # transformers downloads no files.
    return {"local_files_only": True, "trust_remote_code": has_code(folder)}


def _errors(folder: Path) -> tuple[type[Exception], ...]:
    """Return the errors with which transformers may refuse a folder; its code may raise any."""
    return (Exception,) if has_code(folder) else (*UNREADABLE, AttributeError, TypeError)


def _reason(error: Exception) -> str:
    kind = type(error).__name__
    known = next(iter(str(error).splitlines()), "")
    return known if isinstance(error, UNREADABLE) and known else f"{kind}: {known}".rstrip(": ")


def load(folder: Path, dtype: torch.dtype | None = None, **options: object) -> PreTrainedModel:
    """Load a model for evaluation on `device()`, by default in its own dtype; packed weights are
    unpacked. Within `offloading`, a model that does not fit is spread over devices, memory and
    disk; parameters on no device are empty. Raises `Problem` if a value is not finite."""
    spread: dict[str, object] = {}
    try:
        if (allowed := _spreading.get()) is not None:
            size = without_weights(folder, dtype).get_memory_footprint(return_buffers=False)
            if size > next(iter(room().values())):
                spread = {**allowed, "max_memory": room()}
        model = _read(folder, dtype=dtype or "auto", **options, **spread)
    except torch.OutOfMemoryError as error:
        raise Problem(f"{folder} does not fit on {device()}; use a larger one") from error
    except _errors(folder) as error:
        reason = _reason(error)
        if spread:
            raise Problem(
                f"{folder} takes {size / 1e9:.2g} GB, fits on no device, and cannot be spread "
                f"({reason}); use larger devices, or more of them"
            ) from error
        raise Problem(
            f"{folder} holds no readable checkpoint ({reason}); save it again, or leave it out"
        ) from error
    for name, weight in model.named_parameters():
        # Weights that are not in memory, or in 8 bits, cannot be verified.
        if not weight.is_meta and weight.itemsize > 1 and not weight.isfinite().all():
            raise Problem(
                f"{folder}: {name} has values that are not finite; leave {folder.name} out, or "
                "save it again"
            )
    if not spread:
        nn.Module.to(model, device())
    accepted = signature(model.forward).parameters.values()
    if not any(one.name == CACHE or one.kind is one.VAR_KEYWORD for one in accepted):
        # Code of a model's own may have no cache to turn off.
        model.register_forward_pre_hook(_without_cache, with_kwargs=True)
    try:
        if model.can_generate():
            model.generation_config.validate(strict=True)
    except ValueError:
        # No loss depends on it, but transformers would not save it with the quantized model.
        model.generation_config = GenerationConfig()
    return model.eval()


def require_eager(model: PreTrainedModel) -> None:
    """Raise `Problem` if the logits of a model differ under eager attention, which llm-compressor
    and second derivatives need."""
    kind = model.config.model_type
    if kind == "moshi" or (kind == "falcon" and model.config.alibi):
        raise Problem(
            f"transformers computes other logits of this {kind} under eager attention, which GPTQ, "
            "AWQ, recipes and curvature need; use rtn, or leave the model out"
        )


def _without_cache(
    _model: object, inputs: tuple[Tensor], options: dict[str, object]
) -> tuple[tuple[Tensor], dict[str, object]]:
    return inputs, {name: value for name, value in options.items() if name != CACHE}


# Options of accelerate for spreading models; None outside of `offloading`.
_spreading: ContextVar[dict[str, object] | None] = ContextVar("_spreading", default=None)


@contextmanager
def offloading(scratch: Path) -> Iterator[None]:
    """Let accelerate spread models, also into a temporary folder in `scratch`."""
    folder = scratch / OFFLOADED
    token = _spreading.set({"device_map": "auto", "offload_folder": folder})
    try:
        yield
    finally:
        _spreading.reset(token)
        shutil.rmtree(folder, ignore_errors=True)


def room() -> dict[int | str, int]:
    """Return the bytes for weights on every GPU, by its number, and in memory, `cpu`."""
    return {where: int(bytes_ / BESIDE) for where, bytes_ in get_max_memory().items()}


def configuration(folder: Path) -> dict[str, object]:
    """Return the configuration that transformers reads in a folder, defaults included, with dots
    between nested keys."""
    try:
        entries = AutoConfig.from_pretrained(folder, **_own(folder)).to_dict()
    except _errors(folder) as error:
        why = f"has no readable {packed.CONFIG} ({_reason(error)})"
        raise Problem(f"{folder} {why}; restore it") from error
    (flat,) = pd.json_normalize(entries).to_dict("records")
    return {str(key): value for key, value in flat.items()}


def without_weights(folder: Path, dtype: torch.dtype | None = None) -> PreTrainedModel:
    """Return the model in `folder` on the meta device, by default in its own dtype."""
    config = AutoConfig.from_pretrained(folder, **_own(folder))
    with torch.device("meta"):
        return plain(_empty(config, folder, dtype=dtype or config.dtype))


def _empty(config: PreTrainedConfig, folder: Path, **options: object) -> PreTrainedModel:
    auto: Any = AutoModelForCausalLM
    return auto.from_config(config, trust_remote_code=has_code(folder), **options)


def _read(folder: Path, **options: object) -> PreTrainedModel:
    """Read a model without moving it to a device; see `plain`."""
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
    config = AutoConfig.from_pretrained(folder, **_own(folder))
    if config.model_type == "doge" or getattr(config.get_text_config(), SOFTCAP, None):
        options |= {"attn_implementation": "eager"}
    about = packed.read_config(folder).get("quantization_config") or {}
    auto: Any = AutoModelForCausalLM  # its type has no pair of a model and what was loaded
    is_compressed = about.get("quant_method") == packed.COMPRESSED
    if is_compressed and not packed.is_on_grids(about):
        # The library would round weights in FP4 times their scales to bfloat16.
        unpack = partial(unpack_fp4_from_uint8, dtype=torch.float32)
        wide = patch_attr(nvfp4, "unpack_fp4_from_uint8", unpack)
        with redirect_stderr(StringIO()), wide:  # progress bars
            model, read = auto.from_pretrained(folder, **_own(folder), **options)
            model.hf_quantizer.compressor.decompress_model(model)
            _rotate(model, folder, about.get("transform_config"))
        nn.Module.to(model, model.config.dtype)
    elif is_compressed or about.get("quant_method") == packed.GPTQ:
        # Faster than transformers with compressed-tensors, and with equal bits.
        del config.quantization_config
        state = packed.unpacked_state(folder)
        with torch.device("meta"):
            empty = _empty(config, folder)
        for name in (f"{name}.weight" for name, _ in _transposed(empty)):
            # Names of a model that was saved without its head lack the first part.
            saved = name if name in state else name.partition(".")[2]
            state[saved] = state[saved].T
        kind: Any = type(empty)
        model, read = kind.from_pretrained(None, config=config, state_dict=state, **options)
    else:
        model, read = auto.from_pretrained(folder, **_own(folder), **options)
    if read["missing_keys"]:
        # transformers would continue with random weights.
        raise ValueError(f"no weights for {min(read['missing_keys'])}")
    for name, saved, expected in sorted(read["mismatched_keys"])[:1]:
        shapes = f"the shape {[*saved]}, and its config.json asks for {[*expected]}"
        raise ValueError(f"{name} has {shapes}")
    if further := unused(model, read["unexpected_keys"]):
        # transformers would continue without these weights, such as biases or layers.
        raise ValueError(f"the model of its config.json has no {min(further)}")
    if hasattr(model.config, RESCALING):
        # RWKV divides weights in place, and GPTQ would save the divided ones.
        setattr(model.config, RESCALING, 0)
    return plain(model)


def _rotate(model: PreTrainedModel, folder: Path, about: dict[str, object] | None) -> None:
    """Let layers transform their inputs as the checkpoint's config says; transformers does not."""
    from compressed_tensors.transform import TransformConfig, apply_transform_config

    if not about:
        return
    config = TransformConfig.model_validate(about)
    for scheme in config.config_groups.values():
        scheme.apply = [transform for transform in scheme.apply if transform.location == "input"]
    apply_transform_config(model, config)
    for file in weight_files(folder):
        tensors = load_file(file).items()
        model.load_state_dict({k: v for k, v in tensors if "_input." in k}, strict=False)


def _transposed(model: nn.Module) -> list[tuple[str, Conv1D]]:
    return [(name, layer) for name, layer in model.named_modules() if isinstance(layer, Conv1D)]


def plain(model: PreTrainedModel) -> PreTrainedModel:
    """Replace layers of `Conv1D` (GPT-2), and experts in one tensor, by ordinary linear layers. A
    layer that replaces a `Conv1D` has the attribute `transposed`."""
    for name, layer in _transposed(model):
        with torch.device(layer.weight.device):
            # nn.Module has no type for further attributes.
            twin: Any = nn.Linear(layer.nx, layer.nf, dtype=layer.weight.dtype)
        twin.weight.data, twin.bias = layer.weight.data.T.contiguous(), layer.bias
        twin.transposed = True
        model.set_submodule(name, twin)
    if _has_experts(model) and not any(weight.is_meta for weight in model.parameters()):
        # It takes seconds to import.
        from llmcompressor.modeling.moe.linearize import linearize_moe

        # It takes Llama 4 only with images; experts of its text models stay as they are.
        with suppress(AttributeError):
            linearize_moe(model)
    return model


def _has_experts(model: nn.Module) -> bool:
    config = getattr(model, "config", None)
    text = config.get_text_config() if isinstance(config, PreTrainedConfig) else config
    parts = (config, text, getattr(text, "ffn_config", None))
    return any(getattr(part, name, None) for part in parts for name in EXPERTS)


def dequantized(folder: Path) -> dict[str, Tensor]:
    """Return the state dict of any checkpoint, float32 on the CPU, dequantized, and without the
    scaling of AWQ."""
    model = load(folder)
    if getattr(model, "hf_quantizer", None) is not None:
        model = model.dequantize(dtype=torch.float32)
    state = {name: value.float().cpu() for name, value in model.state_dict().items()}
    return packed.unscaled(folder, state)


def token_losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy in nats, float32 [batch, length], of int64 inputs and targets."""
    logits = model(inputs, use_cache=False).logits.float()
    losses = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view_as(targets)


@torch.no_grad()
def block_losses(model: nn.Module, blocks: Tensor, batch_size: int) -> Tensor:
    """Return the mean cross-entropy in nats of each block of tokens, float32 [blocks] on the
    CPU."""
    batches = blocks.to(inputs_device(model)).split(batch_size)
    parts = (token_losses(model, batch[:, :-1], batch[:, 1:]).mean(dim=1) for batch in batches)
    return torch.cat([part.cpu() for part in parts])


def left_out(model: nn.Module, taken: Container[str]) -> list[str]:
    """Return the names of matrices in the transformer blocks outside of the layers `taken`."""
    return [
        name
        for name, weight in model.named_parameters()
        if weight.ndim > 1 and any(map(str.isdigit, name.split(".")))
        if name.rpartition(".")[0] not in taken
    ]


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Return the linear layers of the transformer blocks by module path, which are quantized
    (section 3), without routers. A number in the path marks a block."""
    is_mixture = _has_experts(model)
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and any(part.isdigit() for part in name.split("."))
        if not UNCALLED.search(name) and not (is_mixture and ROUTER.search(name))
    }
