"""Optimizers with the paper's parameter groups: decay on matrices, none on biases and norms."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: parameters with two or more dimensions decay, vectors do not (section 4)."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [
        {"params": [p for _, p in named if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for _, p in named if p.ndim < 2], "weight_decay": 0.0},
    ]


def make(model: nn.Module, settings: Mapping[str, Any]) -> torch.optim.Optimizer:
    """The optimizer that `settings` (kind, betas, eps, weight_decay) describes, at rate 0."""
    groups = parameter_groups(model, settings["weight_decay"])
    return torch.optim.AdamW(
        groups, lr=0.0, betas=tuple(settings["betas"]), eps=settings["eps"], fused=True
    )


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
