"""Schedule-free AdamW (arXiv 2405.15682), from the package of its authors."""

from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

from ptq_dynamics.train.optimizers import Adam


class ScheduleFree(Adam):
    """AdamW that averages weights. Checkpoints hold this average; gradients are taken near it."""

    kind: Literal["schedule-free"]

    def make(self, model: Any, budget: int) -> Any:
        """Return the package's optimizer. Its state keeps numbers of groups under the key -1."""
        import torch
        from schedulefree import AdamWScheduleFree

        def save(made: Any, found: Any) -> None:
            numbers = {name: made.param_groups[0][name] for name in ("k", "lr_max", "weight_sum")}
            found["state"][-1] = {n: torch.tensor(numbers[n], dtype=torch.double) for n in numbers}

        def load(made: Any, found: Any) -> None:
            for group in found["param_groups"]:
                group |= {name: value.item() for name, value in found["state"][-1].items()}

        made = AdamWScheduleFree(self.groups(model), lr=0.0, betas=self.betas, eps=self.eps)
        made.register_state_dict_post_hook(save)
        made.register_load_state_dict_pre_hook(load)
        made.train()
        return made

    def write(self, model: Any, optimizer: Any, folder: Path) -> None:
        """Write the average, then restore the exact bits of the weights."""
        kept = deepcopy(model.state_dict())
        optimizer.eval()
        super().write(model, optimizer, folder)
        optimizer.train()
        model.load_state_dict(kept)
