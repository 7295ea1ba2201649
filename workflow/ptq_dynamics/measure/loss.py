"""Validation loss of every checkpoint of a trajectory, full precision or quantized."""

from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import LOSSES
from ptq_dynamics.measure.settings import LossSettings
from ptq_dynamics.train import trajectory
from ptq_dynamics.train.trajectory import Trajectory


def run(context: Context[LossSettings]) -> Mapping[str, Any]:
    """Write the mean loss of every validation block, float32 [blocks], under the checkpoint's id.

    Full-precision models run in float32, quantized ones in their own dtype (section 2).
    """
    settings, source = context.settings, Trajectory(context.inputs["checkpoints"])
    corpus = context.input("corpus")
    validation = tokens.blocks(corpus, "validation", settings.context, settings.blocks)
    dtype = torch.float32 if settings.full_precision else None
    chosen = source.at(settings.checkpoints)
    losses = {}
    for checkpoint in chosen:
        with models.offloading(context.scratch, context.device_map):
            model = models.load(source.folder(checkpoint), dtype)
            losses[checkpoint.id] = block_losses(model, validation, settings.batch)
        mean = float(losses[checkpoint.id].mean())
        context.progress.maybe(f"{checkpoint.id}  loss {mean:.4f}")
    save_file(losses, context.out / LOSSES)
    digests = {checkpoint.id: source.digest(checkpoint) for checkpoint in chosen}
    return trajectory.facts(chosen, digests=digests, seed=source.seed)


@torch.no_grad()
def block_losses(model: nn.Module, blocks: Tensor, batch_size: int) -> Tensor:
    """Mean next-token cross-entropy in nats of every block, float32 [blocks] on the CPU."""
    device = models.inputs_device(model)
    parts = []
    for batch in blocks.split(batch_size):
        batch = batch.to(device)
        parts.append(models.token_losses(model, batch[:, :-1], batch[:, 1:]).mean(dim=1).cpu())
    return torch.cat(parts)
