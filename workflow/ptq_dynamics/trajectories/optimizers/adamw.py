"""AdamW: torch takes p·lr·decay from a weight p."""

import torch
from torch import nn

from ptq_dynamics.trajectories.optimizers.groups import parameter_groups, set_groups
from ptq_dynamics.trajectories.optimizers.kinds import AdamW


def make(model: nn.Module, settings: AdamW) -> torch.optim.Optimizer:
    """The optimizer of a model, at rate 0."""
    groups, betas = parameter_groups(model), settings.betas
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=settings.eps, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, settings: AdamW, lr: float, peak: float) -> None:
    """Set the next update's learning rate, and the weight decay that goes with it."""
    set_groups(optimizer, lr, settings.weight_decay)
