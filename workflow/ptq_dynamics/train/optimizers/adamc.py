"""AdamC (arXiv 2506.02285): weight decay shrinks with the learning rate, p·lr·(lr/peak)·decay."""

import torch

from ptq_dynamics.train.optimizers.adamw import Settings, make
from ptq_dynamics.train.optimizers.groups import set_groups

__all__ = ["Settings", "make", "set_rate"]


def set_rate(optimizer: torch.optim.Optimizer, settings: Settings, lr: float, peak: float) -> None:
    """Set the next update's learning rate, and the weight decay that goes with it."""
    set_groups(optimizer, lr, settings.weight_decay * (lr / peak))
