"""AdEMAMix (arXiv 2409.03137): AdamW whose update has a second, slow mean of gradients beside the
fast one."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from ptq_dynamics.base.fields import Share
from ptq_dynamics.train.optimizers import Adam


class AdEMAMix(Adam):
    """AdamW with a slow mean of gradients beside the fast one, of decay rate `beta3` and weight
    `alpha`. Both come up over `t_alpha_beta3`, a share of the run, or else are there at once;
    `beta3` is the same at every scale."""

    kind: Literal["ademamix"]
    beta3: Annotated[float, Field(gt=0, lt=1)]
    alpha: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    t_alpha_beta3: Share | None = None

    def lasting(self, share: Share) -> Self:
        """What comes up takes its share of the run."""
        if self.t_alpha_beta3 is None:
            return self
        return self.model_copy(update={"t_alpha_beta3": self.t_alpha_beta3 * share})

    def slow(self, count: int, budget: int) -> tuple[float, float]:
        """Weight and decay rate of the slow mean in an update, the first of which has the count 1:
        the weight grows linearly from 0, the half-life from that of the fast mean."""
        steps = max(1, round((self.t_alpha_beta3 or 0) * budget))
        if count >= steps:
            return self.alpha, self.beta3
        share = count / steps
        memory = (1 - share) * _memory(self.betas[0]) + share * _memory(self.beta3)
        return share * self.alpha, math.exp(-1 / memory)

    def make(self, model: Any, budget: int) -> Any:
        """Algorithm 1 of the paper, in the data type of the weights."""
        import torch

        mix = self

        # Not that of bitsandbytes: its state holds dictionaries and Python numbers, and counts of
        # updates come back in the data type of the weights, so that a resumed run would differ.
        class Algorithm(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self, closure: Any = None) -> None:  # type: ignore[override]
                for group in self.param_groups:
                    for parameter in group["params"]:
                        if parameter.grad is not None:
                            mix._update(parameter, self.state[parameter], group, budget)

        return Algorithm(self.groups(model), {"lr": 0.0, "weight_decay": self.weight_decay})

    def _update(self, parameter: Any, state: Any, group: Mapping[str, Any], budget: int) -> None:
        import torch

        if not state:
            state["step"] = torch.zeros((), dtype=torch.int64)
            state |= {name: torch.zeros_like(parameter) for name in ("fast", "slow", "second")}
        # On the CPU, where reading it waits for nothing; one that was loaded may lie elsewhere.
        state["step"] = state["step"].cpu() + 1
        count = int(state["step"])
        alpha, beta3 = self.slow(count, budget)
        (beta1, beta2), gradient, lr = self.betas, parameter.grad, group["lr"]
        fast = state["fast"].lerp_(gradient, 1 - beta1)
        kept = state["slow"].lerp_(gradient, 1 - beta3)
        second = state["second"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        mean = (fast / (1 - beta1**count)).add_(kept, alpha=alpha)
        spread = (second / (1 - beta2**count)).sqrt_().add_(self.eps)
        parameter.mul_(1 - lr * group["weight_decay"]).addcdiv_(mean, spread, value=-lr)


def _memory(beta: float) -> float:
    # Updates in which a mean with this decay rate forgets all but 1/e; half-lives go with it.
    return -1 / math.log(beta) if beta else 0.0
