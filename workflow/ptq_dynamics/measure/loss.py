"""Validation losses, block by block."""

import torch
from torch import Tensor, nn

from ptq_dynamics import models


@torch.no_grad()
def block_losses(model: nn.Module, blocks: Tensor, batch_size: int) -> Tensor:
    """Mean next-token cross-entropy in nats of every block, float32 [blocks] on the CPU."""
    device = models.inputs_device(model)
    parts = []
    for batch in blocks.split(batch_size):
        batch = batch.to(device)
        parts.append(models.token_losses(model, batch[:, :-1], batch[:, 1:]).mean(dim=1).cpu())
    return torch.cat(parts)
