"""AdamW with a decay that does not scale with the peak rate (figure 19): p·(lr/peak)·decay."""

import torch

from ptq_dynamics.train.optimizers.adamw import Settings, make
from ptq_dynamics.train.optimizers.groups import set_groups

__all__ = ["Settings", "make", "set_rate"]


def set_rate(optimizer: torch.optim.Optimizer, settings: Settings, lr: float, peak: float) -> None:
    """Set the next update's learning rate, and the weight decay that goes with it: torch takes
    p·lr·decay, so 1/peak of the setting stands for decay."""
    set_groups(optimizer, lr, settings.weight_decay / peak)
