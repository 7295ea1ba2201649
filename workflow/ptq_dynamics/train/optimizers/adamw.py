"""AdamW: torch takes p·lr·decay from a weight p."""

import torch
from torch import nn

from ptq_dynamics.train.optimizers.groups import parameter_groups, set_groups
from ptq_dynamics.train.optimizers.settings import Adam as Settings

__all__ = ["Settings", "make", "set_rate"]


def make(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """The optimizer of a model, at rate 0."""
    groups, (first, second) = parameter_groups(model), settings.betas
    betas, eps = (first, second), settings.eps
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=eps, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, settings: Settings, lr: float, peak: float) -> None:
    """Set the next update's learning rate, and the weight decay that goes with it."""
    set_groups(optimizer, lr, settings.weight_decay)
