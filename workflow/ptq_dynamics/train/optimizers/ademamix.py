"""AdEMAMix (arXiv 2409.03137): AdamW whose update has a second, slow mean of gradients beside the
fast one."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ptq_dynamics.train.optimizers.groups import parameter_groups, set_groups
from ptq_dynamics.train.optimizers.settings import AdEMAMix as Settings

__all__ = ["AdEMAMix", "Settings", "make", "set_rate", "slow"]


def make(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """The optimizer of a model, at rate 0."""
    return AdEMAMix(parameter_groups(model), settings)


def set_rate(optimizer: torch.optim.Optimizer, settings: Settings, lr: float, peak: float) -> None:
    """Set the next update's learning rate, and the weight decay that goes with it."""
    set_groups(optimizer, lr, settings.weight_decay)


# Not that of bitsandbytes: its state holds dictionaries and Python numbers, and counts of updates
# come back in the data type of the weights, so that a resumed run would have other bits.
class AdEMAMix(torch.optim.Optimizer):
    """Algorithm 1 of the paper, in the data type of the weights."""

    def __init__(self, groups: list[dict[str, Any]], settings: Settings) -> None:
        super().__init__(groups, {"lr": 0.0, "weight_decay": settings.weight_decay})
        self._settings = settings

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update with the gradients that are there."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group["lr"], group["weight_decay"])

    def _update(self, parameter: nn.Parameter, lr: float, decay: float) -> None:
        state, settings = self.state[parameter], self._settings
        if not state:
            state["step"] = torch.zeros((), dtype=torch.int64)
            state |= {name: torch.zeros_like(parameter) for name in ("fast", "slow", "second")}
        # On the CPU, where reading it waits for nothing; one that was loaded may lie elsewhere.
        state["step"] = state["step"].cpu() + 1
        count = int(state["step"])
        alpha, beta3 = slow(settings, count)
        (beta1, beta2), gradient = settings.betas, parameter.grad
        assert gradient is not None
        fast: Tensor = state["fast"].lerp_(gradient, 1 - beta1)
        kept: Tensor = state["slow"].lerp_(gradient, 1 - beta3)
        second: Tensor = state["second"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        mean = (fast / (1 - beta1**count)).add_(kept, alpha=alpha)
        spread = (second / (1 - beta2**count)).sqrt_().add_(settings.eps)
        parameter.mul_(1 - lr * decay).addcdiv_(mean, spread, value=-lr)


def slow(settings: Settings, count: int) -> tuple[float, float]:
    """Weight and decay rate of the slow mean in an update, the first of which has the count 1: the
    weight grows linearly from 0, the half-life from that of the fast mean."""
    if settings.t_alpha_beta3 is None or count >= settings.t_alpha_beta3:
        return settings.alpha, settings.beta3
    share = count / settings.t_alpha_beta3
    memory = (1 - share) * _memory(settings.betas[0]) + share * _memory(settings.beta3)
    return share * settings.alpha, math.exp(-1 / memory)


def _memory(beta: float) -> float:
    """Updates in which a mean with this decay rate forgets all but 1/e; half-lives go with it."""
    return -1 / math.log(beta) if beta else 0.0
