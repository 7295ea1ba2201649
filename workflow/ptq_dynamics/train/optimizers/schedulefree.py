"""Schedule-free AdamW (arXiv 2405.15682), from the package of its authors."""

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ptq_dynamics.train.optimizers import Adam

if TYPE_CHECKING:
    from schedulefree import AdamWScheduleFree
    from torch.optim.optimizer import Optimizer, StateDict
    from transformers import PreTrainedModel


class ScheduleFree(Adam):
    """AdamW that averages weights. Checkpoints hold this average; gradients are taken near it."""

    kind: Literal["schedule-free"]

    def make(self, model: "PreTrainedModel", budget: int) -> "AdamWScheduleFree":
        """Return the package's optimizer. Its state keeps numbers of groups under the key -1."""
        import torch
        from schedulefree import AdamWScheduleFree

        def save(optimizer: "Optimizer", saved: "StateDict") -> None:
            group = optimizer.param_groups[0]
            numbers = {name: group[name] for name in ("k", "lr_max", "weight_sum")}
            saved["state"][-1] = {n: torch.tensor(numbers[n], dtype=torch.double) for n in numbers}

        def load(optimizer: "Optimizer", saved: "StateDict") -> None:
            for group in saved["param_groups"]:
                group |= {name: value.item() for name, value in saved["state"][-1].items()}

        optimizer = AdamWScheduleFree(self.groups(model), lr=0.0, betas=self.betas, eps=self.eps)
        optimizer.register_state_dict_post_hook(save)
        optimizer.register_load_state_dict_pre_hook(load)
        optimizer.train()
        return optimizer

    def save_weights(
        self, model: "PreTrainedModel", optimizer: "AdamWScheduleFree", folder: Path
    ) -> None:
        """Write the average, then restore the exact bits of the weights."""
        kept = deepcopy(model.state_dict())
        optimizer.eval()
        super().save_weights(model, optimizer, folder)
        optimizer.train()
        model.load_state_dict(kept)
