"""The paper's parameter groups (section 4): decay on matrices, none on biases and norms."""

from typing import Any

import torch
from torch import nn


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Two groups: parameters with two or more dimensions decay, vectors do not."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "decays": True},
        {"params": [p for p in parameters if p.ndim < 2], "decays": False},
    ]


def set_groups(optimizer: torch.optim.Optimizer, lr: float, decay: float) -> None:
    """Set the next update's learning rate, and the weight decay of the group that decays."""
    for group in optimizer.param_groups:
        group["lr"] = lr
        group["weight_decay"] = decay if group["decays"] else 0.0
