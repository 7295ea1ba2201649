"""The part of a model's loss that depends on the weights of its blocks."""

from collections import defaultdict
from itertools import chain
from statistics import mean

import torch
from torch import Tensor, nn

from ptq_dynamics import models
from ptq_dynamics.measure.names import CARRIED, CARRIED_BY_ONE, GAIN


@torch.no_grad()
def carried(model: nn.Module, blocks: Tensor, batch_size: int) -> dict[str, float]:
    """Return the rise in loss (nats) with all matrices set to zero, and its mean for one block at
    a time. The gain is the mean over matrices of the root mean square of weights × √inputs, by
    which a matrix scales random inputs. `blocks`: int64 [n, context + 1]."""
    matrices = defaultdict[str, list[Tensor]](list)
    for name, layer in models.linear_layers(model).items():
        matrices[next(part for part in name.split(".") if part.isdigit())].append(layer.weight)

    def without(chosen: list[Tensor]) -> float:
        kept = [weight.clone() for weight in chosen]
        for weight in chosen:
            weight.zero_()
        loss = float(models.block_losses(model, blocks, batch_size).mean())
        for weight, before in zip(chosen, kept, strict=True):
            weight.copy_(before)
        return loss

    every, loss = [*chain(*matrices.values())], without([])
    return {
        CARRIED: without(every) - loss,
        CARRIED_BY_ONE: mean(map(without, matrices.values())) - loss,
        GAIN: mean(float(w.square().mean().sqrt()) * w.shape[1] ** 0.5 for w in every),
    }
