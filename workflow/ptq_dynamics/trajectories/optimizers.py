"""Optimizers with the paper's parameter groups: decay on matrices, none on biases and norms."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Two groups: parameters with two or more dimensions decay, vectors do not (section 4)."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "decays": True},
        {"params": [p for p in parameters if p.ndim < 2], "decays": False},
    ]


def make(model: nn.Module, settings: Mapping[str, Any]) -> torch.optim.Optimizer:
    """The optimizer that `settings` (betas, eps) describes, at rate 0."""
    return torch.optim.AdamW(
        parameter_groups(model),
        lr=0.0,
        betas=tuple(settings["betas"]),
        eps=settings["eps"],
        fused=True,
    )


def set_rate(
    optimizer: torch.optim.Optimizer, settings: Mapping[str, Any], lr: float, peak: float
) -> None:
    """Set the next update's learning rate, and the weight decay that goes with it.

    torch's AdamW takes p·lr·decay from a weight p. The paper's kinds (section 4) differ in what
    stands for decay: its constant; 1/peak of it, which makes p·λ·lr/peak (independent of the peak
    rate); or lr/peak of it (AdamC, arXiv 2506.02285).
    """
    decay = settings["weight_decay"]
    match settings["kind"]:
        case "adamw-independent":
            decay /= peak
        case "adamc":
            decay *= lr / peak
    for group in optimizer.param_groups:
        group["lr"] = lr
        group["weight_decay"] = decay if group["decays"] else 0.0


def state_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Every tensor of the optimizer's state, named `INDEX.NAME`; Python numbers as tensors."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value).contiguous()
        for index, entry in state.items()
        for name, value in entry.items()
    }


def load_state_tensors(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `state_tensors` gave."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
