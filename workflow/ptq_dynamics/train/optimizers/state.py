"""An optimizer's state as named tensors, and back."""

from collections.abc import Mapping

import torch
from torch import Tensor


def state_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Every tensor of the optimizer's state, named `INDEX.NAME`; Python numbers as tensors."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value).contiguous()
        for index, entry in state.items()
        for name, value in entry.items()
    }


def load_state_tensors(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `state_tensors` gave."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
