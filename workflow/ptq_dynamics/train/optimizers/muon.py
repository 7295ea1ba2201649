"""Muon (Jordan et al. 2024) for the matrices of blocks, and AdamW for all other parameters."""

from typing import TYPE_CHECKING, Literal

from ptq_dynamics.train.optimizers import Adam, Both, Forgetting, Group

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Muon(Adam):
    """Muon of torch, whose steps have the size of AdamW's, so that both share learning rates."""

    kind: Literal["muon"]
    momentum: Forgetting

    def make(self, model: "PreTrainedModel", budget: int) -> Both:
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
