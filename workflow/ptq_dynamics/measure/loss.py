"""Validation loss of every checkpoint of a trajectory, full precision or quantized."""

from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.trajectories import trajectory

LOSSES = "losses.safetensors"


def run(context: Context) -> Mapping[str, Any]:
    """Write the mean loss of every validation block, float32 [blocks], under the checkpoint's name.

    Full-precision models run in float32, quantized ones in their own dtype (section 2).
    """
    config = context.settings
    source = context.input("checkpoints")
    validation = tokens.blocks(
        context.input("corpus"), "validation", config["context"], config["blocks"]
    )
    dtype = torch.float32 if config["full_precision"] else None
    chosen = trajectory.at_steps(source, config["steps"])
    losses = {}
    for checkpoint in chosen:
        model = models.load(source.subfolder(checkpoint.folder), dtype)
        losses[checkpoint.folder] = block_losses(model, validation, config["batch"])
        mean = float(losses[checkpoint.folder].mean())
        context.progress.maybe(f"step {checkpoint.step}  loss {mean:.4f}")
    save_file(losses, context.out / LOSSES)
    digests = {c.folder: trajectory.digest(source, c) for c in chosen}
    return trajectory.facts(chosen, digests=digests, seed=source.facts["seed"])


@torch.no_grad()
def block_losses(model: nn.Module, blocks: Tensor, batch_size: int) -> Tensor:
    """Mean next-token cross-entropy in nats of every block, float32 [blocks] on the CPU."""
    device = next(model.parameters()).device
    parts = []
    for batch in blocks.split(batch_size):
        batch = batch.to(device)
        parts.append(models.token_losses(model, batch[:, :-1], batch[:, 1:]).mean(dim=1).cpu())
    return torch.cat(parts)
