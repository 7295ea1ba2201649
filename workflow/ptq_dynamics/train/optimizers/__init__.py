"""Optimizers, one module each."""

from abc import abstractmethod
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Rate, Share, Strict

Forgetting = Annotated[float, Field(ge=0, lt=1)]
# Parameters without weight decay: biases and weights of norms; the embedding of tokens.
Exempt = Literal["vectors", "embedding"]
ALIKE: tuple[Exempt, ...] = ("vectors",)  # the paper's runs (section 4)


class Optimizer(Strict):
    """What every optimizer answers: its configuration, which makes it and sets its rate. A step
    takes p·lr·weight_decay from a weight p, but for those that are `exempt`; gradient norms are cut
    at `clip`, or where all runs have theirs cut."""

    kind: str
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    exempt: Annotated[tuple[Exempt, ...], Field(exclude_if=ALIKE.__eq__)] = ALIKE
    clip: Annotated[Rate | None, Field(exclude_if=lambda clip: clip is None)] = None

    @abstractmethod
    def make(self, model: Any, budget: int) -> Any:
        """The optimizer of a model, at rate 0; `budget` is the steps that shares are of."""

    def decay(self, lr: float, peak: float) -> float:
        """The weight decay that torch is set to at rate `lr`: it takes p·lr·decay in one step."""
        return self.weight_decay

    def per_step(self, lr: float, peak: float) -> float:
        """The share of a weight that one step at rate `lr` takes."""
        return lr * self.decay(lr, peak)

    def set_rate(self, optimizer: Any, lr: float, peak: float) -> None:
        """Set the next update's learning rate, and the weight decay that goes with it."""
        for group in optimizer.param_groups:
            group["lr"] = lr
            group["weight_decay"] = self.decay(lr, peak) if group["decays"] else 0.0

    def scaled(self, peak_lr: float, weight_decay: float) -> Self:
        """With the factors that a scale has on peak rates and weight decay."""
        return self.model_copy(update={"weight_decay": self.weight_decay * weight_decay})

    def groups(self, model: Any) -> list[dict[str, Any]]:
        """The parameters of a model with weight decay, and those without."""
        embedding = "embedding" in self.exempt and model.get_input_embeddings().weight
        found: dict[bool, list[Any]] = {True: [], False: []}
        for each in model.parameters():
            kinds = {"vectors": each.ndim < 2, "embedding": each is embedding}
            found[not any(kinds[kind] for kind in self.exempt)].append(each)
        return [{"params": params, "decays": decay} for decay, params in found.items()]

    def lasting(self, share: Share) -> Self:
        """For a run, with what branches from it, over this share of the budget."""
        return self


class Adam(Optimizer):
    """What the kinds of Adam share: decay rates of both moments, ε, and torch's implementation."""

    betas: tuple[Forgetting, Forgetting]
    eps: Rate

    def make(self, model: Any, budget: int) -> Any:
        """torch's own AdamW."""
        import torch

        groups = self.groups(model)
        return torch.optim.AdamW(groups, lr=0.0, betas=self.betas, eps=self.eps, fused=True)


AnyOptimizer = Annotated[Optimizer, OneOf(__name__, by="kind")]
