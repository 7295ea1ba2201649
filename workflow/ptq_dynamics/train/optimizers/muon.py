"""Muon (Jordan et al. 2024) for the matrices of blocks, and AdamW for all other parameters."""

from typing import TYPE_CHECKING, Literal

from ptq_dynamics.train.optimizers import Adam, Forgetting, Group, Updates

if TYPE_CHECKING:
    from torch.optim.optimizer import Optimizer, StateDict
    from transformers import PreTrainedModel


class Muon(Adam):
    """Muon of torch, whose steps have the size of AdamW's, so that both share learning rates."""

    kind: Literal["muon"]
    momentum: Forgetting

    def make(self, model: "PreTrainedModel", budget: int) -> Updates:
        """Return Muon and AdamW behind one interface."""
        import torch

        from ptq_dynamics import models

        matrices = {id(layer.weight) for layer in models.linear_layers(model).values()}
        own, others = list[Group](), list[Group]()
        for group in self.groups(model):
            for is_own, groups in ((True, own), (False, others)):
                params = [p for p in group["params"] if (id(p) in matrices) == is_own]
                groups += [{**group, "params": params}] if params else []
        muon = torch.optim.Muon(own, lr=0.0, momentum=self.momentum, adjust_lr_fn="match_rms_adamw")
        rest = torch.optim.AdamW(others, lr=0.0, betas=self.betas, eps=self.eps, fused=True)
        return Both(muon, rest)


class Both:
    """Two optimizers of torch with the interface of one."""

    def __init__(self, *parts: "Optimizer") -> None:
        self.parts = parts

    @property
    def param_groups(self) -> list[Group]:
        """The groups of both optimizers."""
        return [group for part in self.parts for group in part.param_groups]

    def step(self) -> None:
        """Update all parameters."""
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear all gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none)

    def state_dict(self) -> "StateDict":
        """Return the states of both; even numbers belong to the first optimizer."""
        states = [part.state_dict()["state"] for part in self.parts]
        return {"state": {2 * n + at: s for at, of in enumerate(states) for n, s in of.items()}}

    def load_state_dict(self, state_dict: "StateDict") -> None:
        """Load what `state_dict` returned."""
        for at, part in enumerate(self.parts):
            state = {n // 2: s for n, s in state_dict["state"].items() if n % 2 == at}
            part.load_state_dict({**part.state_dict(), "state": state})
