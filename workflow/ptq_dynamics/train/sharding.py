"""Models and optimizers of which each process keeps a part (FSDP2), and their states as a whole.

Who asks for a state gets whole tensors on the CPU, and a state of whole tensors can be loaded; both
need all processes. Parts are torch's `DTensor`s.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


def shard(model: nn.Module, count: int, *, compiled: bool) -> None:
    """Leave every process a part of each weight. The blocks, a unit each, have whole weights while
    they are computed with; they are what is compiled, since units are exchanged in between."""
    device = next(model.parameters()).device.type
    mesh = init_device_mesh(device, (count,))
    for block in _blocks(model):
        if compiled:
            block.compile()
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    # Before any is changed, which changes the modules below.
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return (block for each in lists for block in each)


def save_whole(model: nn.Module, asked: Callable[[], bool]) -> None:
    """Have the model's `state_dict` give whole tensors, and `load_state_dict` take them.

    `asked` is called when the state is asked for, and says whether this process keeps it, or only
    takes part.
    """

    def gather(module: nn.Module, state: dict[str, Any], _prefix: str, _about: Any) -> None:
        keeps = asked()
        known = dict[int, Tensor]()
        for name, weight in module.named_parameters(remove_duplicate=False):
            # What is tied stays so.
            if id(weight) not in known:
                known[id(weight)] = whole(weight.detach(), keeps)
            state[name] = known[id(weight)]

    def scatter(module: nn.Module, state: dict[str, Any], *_: Any) -> None:
        for name, weight in module.named_parameters(remove_duplicate=False):
            if name in state:
                state[name] = part(state[name], weight)

    model.register_state_dict_post_hook(gather)  # type: ignore[no-untyped-call]
    model.register_load_state_dict_pre_hook(scatter)  # type: ignore[no-untyped-call]


def save_whole_moments(optimizer: torch.optim.Optimizer, asked: Callable[[], bool]) -> None:
    """The same for an optimizer's state."""

    def gather(_: torch.optim.Optimizer, content: dict[str, Any]) -> dict[str, Any]:
        keeps = asked()
        return _with_each(content, lambda _, value: whole(value, keeps))

    def scatter(optimizer: torch.optim.Optimizer, content: dict[str, Any]) -> dict[str, Any]:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        return _with_each(content, lambda index, value: part(value, weights[index]))

    optimizer.register_state_dict_post_hook(gather)
    optimizer.register_load_state_dict_pre_hook(scatter)


def _with_each(content: dict[str, Any], change: Callable[[int, Any], Any]) -> dict[str, Any]:
    state = {
        index: {name: change(index, value) for name, value in entry.items()}
        for index, entry in content["state"].items()
    }
    return {**content, "state": state}


def whole(value: Any, keeps: bool) -> Any:
    """All of a tensor, on the CPU, of which there are parts, where this process keeps it; anything
    else as it is."""
    if not isinstance(value, DTensor):
        return value
    found = value.full_tensor()
    return found.cpu() if keeps else value


def part(value: Tensor, like: Tensor) -> Tensor:
    """This process's part of a tensor, which all have, where `like` is in parts of the same kind;
    anything else as it is."""
    if not isinstance(like, DTensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
