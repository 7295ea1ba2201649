"""Muon (Jordan et al. 2024) for the matrices of blocks, and AdamW for all other parameters."""

from collections.abc import Mapping
from typing import Any, Literal

from ptq_dynamics.train.optimizers import Adam, Forgetting


class Muon(Adam):
    """Muon of torch, whose steps have the size of AdamW's, so that both share learning rates."""

    kind: Literal["muon"]
    momentum: Forgetting

    def make(self, model: Any, budget: int) -> Any:
        """Return Muon and AdamW behind one interface."""
        import torch

        from ptq_dynamics import models

        matrices = {id(layer.weight) for layer in models.linear_layers(model).values()}
        own, others = list[dict[str, Any]](), list[dict[str, Any]]()
        for group in self.groups(model):
            for taken, found in ((True, own), (False, others)):
                params = [each for each in group["params"] if (id(each) in matrices) == taken]
                found += [{**group, "params": params}] if params else []
        look: dict[str, Any] = {"lr": 0.0, "momentum": self.momentum}
        muon = torch.optim.Muon(own, adjust_lr_fn="match_rms_adamw", **look)
        rest = torch.optim.AdamW(others, lr=0.0, betas=self.betas, eps=self.eps, fused=True)
        return Both(muon, rest)


class Both:
    """Two optimizers of torch with the interface of one."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    @property
    def param_groups(self) -> list[dict[str, Any]]:
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

    def state_dict(self) -> dict[str, Any]:
        """Return the states of both; even numbers belong to the first optimizer."""
        states = [part.state_dict()["state"] for part in self.parts]
        return {"state": {2 * n + at: s for at, of in enumerate(states) for n, s in of.items()}}

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned."""
        for at, part in enumerate(self.parts):
            state = {n // 2: each for n, each in found["state"].items() if n % 2 == at}
            part.load_state_dict({**part.state_dict(), "state": state})
