"""AdamW: torch takes p·lr·decay from a weight p."""

from dataclasses import dataclass

import torch
from torch import nn

from ptq_dynamics.trajectories.optimizers.groups import parameter_groups, set_groups


@dataclass(frozen=True)
class Settings:
    """Decay rates of both moments, ε, and the weight decay."""

    betas: tuple[float, float]
    eps: float
    weight_decay: float


def make(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """The optimizer of a model, at rate 0."""
    groups, (first, second) = parameter_groups(model), settings.betas
    betas, eps = (first, second), settings.eps
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=eps, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, settings: Settings, lr: float, peak: float) -> None:
    """Set the next update's learning rate, and the weight decay that goes with it."""
    set_groups(optimizer, lr, settings.weight_decay)
