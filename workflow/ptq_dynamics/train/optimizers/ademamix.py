"""AdEMAMix (arXiv 2409.03137)."""

import math
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field

from ptq_dynamics.base.fields import Share
from ptq_dynamics.train.optimizers import Adam, Group

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer
    from transformers import PreTrainedModel


class AdEMAMix(Adam):
    """AdamW with a second, slow mean of gradients (decay rate `beta3`, weight `alpha`), both rising
    over the share `t_alpha_beta3` of the run (None: constant)."""

    kind: Literal["ademamix"]
    beta3: Annotated[float, Field(gt=0, lt=1)]
    alpha: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    t_alpha_beta3: Share | None = None

    def lasting(self, share: Share) -> Self:
        """Scale the share in which both rise."""
        if self.t_alpha_beta3 is None:
            return self
        return self.model_copy(update={"t_alpha_beta3": self.t_alpha_beta3 * share})

    def slow(self, count: int, budget: int) -> tuple[float, float]:
        """Return weight and decay rate of the slow mean in update `count`, from 1 on."""
        steps = max(1, round((self.t_alpha_beta3 or 0) * budget))
        if count >= steps:
            return self.alpha, self.beta3
        share = count / steps
        memory = (1 - share) * _memory(self.betas[0]) + share * _memory(self.beta3)
        return share * self.alpha, math.exp(-1 / memory)

    def make(self, model: "PreTrainedModel", budget: int) -> "Optimizer":
        """Return algorithm 1 of the paper, in the data type of the weights."""
        import torch

        mix = self

        # bitsandbytes rounds counts of updates when it restores a state.
        class Algorithm(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self, closure: None = None) -> None:  # type: ignore[override]
                for group in self.param_groups:
                    for weight in group["params"]:
                        mix._update(weight, self.state[weight], group, budget)

        return Algorithm(self.groups(model), {"lr": 0.0, "weight_decay": self.weight_decay})

    def _update(
        self, weight: "Tensor", state: dict[str, "Tensor"], group: Group, budget: int
    ) -> None:
        import torch

        if (gradient := weight.grad) is None:
            return
        if not state:
            state["step"] = torch.zeros((), dtype=torch.int64)
            state |= {name: torch.zeros_like(weight) for name in ("fast", "slow", "second")}
        # A loaded state may lie on the GPU; reading from the CPU waits for nothing.
        state["step"] = state["step"].cpu() + 1
        count = int(state["step"])
        alpha, beta3 = self.slow(count, budget)
        (beta1, beta2), lr = self.betas, group["lr"]
        fast = state["fast"].lerp_(gradient, 1 - beta1)
        kept = state["slow"].lerp_(gradient, 1 - beta3)
        second = state["second"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        mean = (fast / (1 - beta1**count)).add_(kept, alpha=alpha)
        spread = (second / (1 - beta2**count)).sqrt_().add_(self.eps)
        weight.mul_(1 - lr * group["weight_decay"]).addcdiv_(mean, spread, value=-lr)


def _memory(beta: float) -> float:
    # Updates after which the weight of a gradient is 1/e; proportional to the half-life.
    return -1 / math.log(beta) if beta else 0.0
