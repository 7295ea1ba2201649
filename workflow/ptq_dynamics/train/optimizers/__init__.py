"""Optimizers: classes whose fields are their configuration."""

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Rate, Share, Strict

if TYPE_CHECKING:
    import torch
    from torch.optim.optimizer import StateDict
    from transformers import PreTrainedModel

Forgetting = Annotated[float, Field(ge=0, lt=1)]
# Parameters without weight decay; vectors are biases and weights of norms.
Exempt = Literal["vectors", "embedding"]
ALIKE: tuple[Exempt, ...] = ("vectors",)  # the paper's runs (section 4)
# A group of torch: its parameters, whether their weights decay, and options of any type.
Group = dict[str, Any]


class Both:
    """Two optimizers of torch with the interface of one."""

    def __init__(self, *parts: "torch.optim.Optimizer") -> None:
        self.parts = parts

    @property
    def param_groups(self) -> list[Group]:
        """The groups of both optimizers."""
        return [group for part in self.parts for group in part.param_groups]

    def step(self) -> None:
        """Update all parameters."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> "StateDict":
        """Return the states of both; even numbers belong to the first optimizer."""
        states = [part.state_dict()["state"] for part in self.parts]
        return {"state": {2 * n + at: s for at, of in enumerate(states) for n, s in of.items()}}

    def load_state_dict(self, state_dict: "StateDict") -> None:
        """Load what `state_dict` returned."""
        for at, part in enumerate(self.parts):
            state = {n // 2: s for n, s in state_dict["state"].items() if n % 2 == at}
            part.load_state_dict({**part.state_dict(), "state": state})


class Optimizer(Strict):
    """An optimizer; `clip` bounds the norm of the gradient (None: the bound of all runs)."""

    kind: str
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    exempt: Annotated[tuple[Exempt, ...], Field(exclude_if=ALIKE.__eq__)] = ALIKE
    clip: Annotated[Rate | None, Field(exclude_if=lambda clip: clip is None)] = None

    @abstractmethod
    def make(self, model: "PreTrainedModel", budget: int) -> "torch.optim.Optimizer | Both":
        """Return the optimizer of a model, at rate 0; `budget` is that of the scale in steps."""

    def decay(self, lr: float, peak: float) -> float:
        """Return the weight decay for torch, which takes p·lr·decay from a weight p in a step."""
        return self.weight_decay

    def per_step(self, lr: float, peak: float) -> float:
        """Return the share of a weight that one step at rate `lr` takes."""
        return lr * self.decay(lr, peak)

    def set_rate(self, optimizer: "torch.optim.Optimizer | Both", lr: float, peak: float) -> None:
        """Set the learning rate of the next update, and the weight decay for this rate."""
        for group in optimizer.param_groups:
            group["lr"] = lr
            group["weight_decay"] = self.decay(lr, peak) if group["decays"] else 0.0

    def save_weights(
        self, model: "PreTrainedModel", optimizer: "torch.optim.Optimizer | Both", folder: Path
    ) -> None:
        """Write the weights of a checkpoint."""
        model.save_pretrained(folder)

    def scaled(self, rate_factor: float, decay_factor: float) -> Self:
        """Return a copy with a scale's factors of peak rates and weight decay."""
        return self.model_copy(update={"weight_decay": self.weight_decay * decay_factor})

    def groups(self, model: "PreTrainedModel") -> list[Group]:
        """Return the parameters with weight decay, and those without, as groups of torch."""
        embedding = "embedding" in self.exempt and model.get_input_embeddings().weight
        by_decay: dict[bool, list[torch.nn.Parameter]] = {True: [], False: []}
        for parameter in model.parameters():
            kinds = {"vectors": parameter.ndim < 2, "embedding": parameter is embedding}
            by_decay[not any(kinds[kind] for kind in self.exempt)].append(parameter)
        return [{"params": params, "decays": decays} for decays, params in by_decay.items()]

    def lasting(self, share: Share) -> Self:
        """Return a copy for a run that, with its branches, takes a share of the budget."""
        return self


class Adam(Optimizer):
    """Adam with decay rates of both moments and ε."""

    betas: tuple[Forgetting, Forgetting]
    eps: Rate

    def make(self, model: "PreTrainedModel", budget: int) -> "torch.optim.Optimizer | Both":
        """Return AdamW of torch."""
        import torch

        groups = self.groups(model)
        return torch.optim.AdamW(groups, lr=0.0, betas=self.betas, eps=self.eps, fused=True)


AnyOptimizer = Annotated[Optimizer, OneOf(__name__, by="kind")]
