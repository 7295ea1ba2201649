"""How much of a model's loss its blocks carry: what rounding their weights can touch at all."""

from collections.abc import Iterable
from itertools import groupby
from statistics import mean

import torch
from torch import Tensor, nn

from ptq_dynamics import models


@torch.no_grad()
def carried(model: nn.Module, blocks: Tensor, batch_size: int) -> dict[str, float]:
    """Nats of validation loss that the matrices of a model's blocks carry: `all_blocks`, the loss
    with every matrix zeroed minus the loss; `one_block`, the mean of the same for one block at a
    time. `gain`: the mean over matrices of the root mean square of weights × √inputs, by which a
    matrix scales random inputs. `blocks`: int64 [n, context + 1]."""
    layers = models.linear_layers(model)
    matrices = {name: layer.weight for name, layer in layers.items()}
    each = [
        [matrices[name] for name in names]
        for _, names in groupby(matrices, key=lambda name: block_of(name))
    ]

    def without(chosen: Iterable[nn.Parameter]) -> float:
        kept = [(weight, weight.clone()) for weight in chosen]
        for weight, _ in kept:
            weight.zero_()
        loss = float(models.block_losses(model, blocks, batch_size).mean())
        for weight, before in kept:
            weight.copy_(before)
        return loss

    loss = without([])
    gains = [float(w.square().mean().sqrt()) * w.shape[1] ** 0.5 for w in matrices.values()]
    return {
        "all_blocks": without(matrices.values()) - loss,
        "one_block": mean(without(chosen) for chosen in each) - loss,
        "gain": mean(gains),
    }


def block_of(layer: str) -> str:
    """The block of a linear layer: its path up to the first number."""
    parts = layer.split(".")
    return ".".join(parts[: 1 + next(i for i, part in enumerate(parts) if part.isdigit())])
