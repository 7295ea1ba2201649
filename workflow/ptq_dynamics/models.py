"""Models: fresh ones of the paper's architecture, and saved ones from a checkpoint folder."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedModel

from ptq_dynamics.problem import Problem

# bitsandbytes logs a line per layer call: inputs are cast to float16 to be rounded.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


def device() -> torch.device:
    """The first GPU where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def place(model: nn.Module) -> None:
    """Move a model to `device()`."""
    nn.Module.to(model, device())


def create(shape: Mapping[str, Any], seed: int) -> GPTNeoXForCausalLM:
    """A freshly initialised GPT-NeoX in float32 (section 4: untied, parallel residual)."""
    torch.manual_seed(seed)
    return GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=shape["vocabulary"],
            hidden_size=shape["width"],
            num_hidden_layers=shape["layers"],
            num_attention_heads=shape["heads"],
            intermediate_size=shape["feedforward"],
            max_position_embeddings=shape["context"],
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": shape["rotary_fraction"],
            },
            tie_word_embeddings=False,
            use_parallel_residual=True,
            attention_dropout=0.0,
            hidden_dropout=0.0,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def load(folder: Path, dtype: torch.dtype | None = None, **options: Any) -> PreTrainedModel:
    """The model saved in `folder`, in its own dtype unless told, for evaluation, on `device()`.

    Raises `Problem` when the folder does not hold a whole model.
    """
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype or "auto", local_files_only=True, **options
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise Problem(f"{folder} holds no readable checkpoint ({reason}); rebuild it") from error
    place(model)
    return model.eval()


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
