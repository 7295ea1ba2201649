"""Models saved in checkpoint folders."""

import logging
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedModel,
)

from ptq_dynamics import packed
from ptq_dynamics.problem import Problem

# bitsandbytes logs a line per layer call: inputs are cast to float16 to be rounded.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


def device() -> torch.device:
    """The first GPU where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def place(model: nn.Module) -> None:
    """Move a model to `device()`."""
    nn.Module.to(model, device())


def load(folder: Path, dtype: torch.dtype | None = None, **options: Any) -> PreTrainedModel:
    """The model saved in `folder`, in its own dtype unless told, for evaluation, on `device()`.

    Weights that are packed or in NF4 are unpacked: their linear layers are plain ones.
    Raises `Problem` when the folder does not hold a whole model.
    """
    try:
        model = _read(folder, dtype=dtype or "auto", **options)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise Problem(f"{folder} holds no readable checkpoint ({reason}); rebuild it") from error
    place(model)
    return model.eval()


def _read(folder: Path, **options: Any) -> PreTrainedModel:
    options |= {"output_loading_info": True}
    if packed.is_packed(folder):
        # Quicker than transformers' own way through compressed-tensors, and with equal bits.
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        del config.quantization_config
        kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        state = packed.state(folder)
        model, about = kind.from_pretrained(None, config=config, state_dict=state, **options)
    else:
        auto: Any = AutoModelForCausalLM
        model, about = auto.from_pretrained(folder, local_files_only=True, **options)
    if about["missing_keys"]:
        # transformers would go on with random ones.
        raise ValueError(f"no weights for {min(about['missing_keys'])}")
    if packed.quantization(folder).get("load_in_4bit"):
        # bitsandbytes' own layers compute in bfloat16 on some CPUs and not on others.
        model = model.dequantize(dtype=model.dtype)
    plain: PreTrainedModel = model
    return plain


def dequantized(folder: Path) -> dict[str, Tensor]:
    """The plain state dict, float32 on the CPU, of any saved checkpoint, quantized or not.

    Where the quantized model is a rescaled one (AWQ), its weights are scaled back, so that they can
    be compared with those that were quantized.
    """
    model = load(folder)
    if getattr(model, "hf_quantizer", None) is not None:
        model = model.dequantize(dtype=torch.float32)
    state = {name: value.float().cpu() for name, value in model.state_dict().items()}
    return packed.unscaled(folder, state)


def token_losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Next-token cross-entropy in nats, float32 [batch, length], of int64 inputs and targets."""
    logits = model(inputs, use_cache=False).logits.float()
    losses = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view_as(targets)


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """The linear layers of the transformer blocks by module path: what is quantized (section 3).

    Blocks are told by their place in a list of layers, so embeddings and output head are left out
    whatever the architecture calls them.
    """
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and any(part.isdigit() for part in name.split("."))
    }
