"""Curvature of a causal language model's loss: its Hessian, and the part of a job that is the same
for every probe of it."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.curvature.settings import CurvatureSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import CHECKPOINT, ERROR, METRIC, VALUE, VALUES
from ptq_dynamics.train import trajectory
from ptq_dynamics.train.trajectory import Trajectory

S = TypeVar("S", bound=CurvatureSettings)
# Name, value and error, where there is one.
Metric = tuple[str, float, float | None]


class LossHessian:
    """Hessian of the mean next-token cross-entropy over all probe tokens; call it with v for H v.

    probes: [n, context] int64, `batch_size` per micro-batch. keep_graph: hold the gradient's graph
    of every micro-batch between products, which spares their forward and backward passes; memory
    grows with n. Vectors are `like` a tensor [P], P the number of trainable parameters, in the
    order of `plane.flatten`. `loss` is the mean (nats per token).
    """

    def __init__(
        self, model: PreTrainedModel, probes: Tensor, batch_size: int, *, keep_graph: bool = True
    ) -> None:
        self._model = model
        self._batches = torch.split(probes, batch_size)
        self._tokens = probes.shape[0] * (probes.shape[1] - 1)
        self._parameters = [p for _, p in sorted(model.named_parameters()) if p.requires_grad]
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self.dim = sum(self._sizes)
        self.like = self._parameters[0].new_empty(()).expand(self.dim)
        with torch.no_grad():
            self.loss = sum(self._batch_loss(batch).item() for batch in self._batches)
        if not math.isfinite(self.loss):
            raise ValueError(f"loss on the probes is {self.loss}: the model has no curvature")
        self._graphs = list(self._gradients()) if keep_graph else None

    def __call__(self, v: Tensor) -> Tensor:
        """H v, exact mean over all tokens; v and result [P]."""
        return sum(self._products(v), torch.zeros_like(v))

    def form(self, v: Tensor) -> Tensor:
        """v'H v by micro-batches of probes, float64 [b]: their mean; their spread says how much it
        depends on the probes. v: [P]."""
        parts = [dot(v, part) for part in self._products(v)]
        return torch.tensor(parts, dtype=torch.float64) * len(parts)

    def _products(self, v: Tensor) -> Iterator[Tensor]:
        parts = zip(v.split_with_sizes(self._sizes), self._parameters, strict=True)
        shaped = [part.view_as(parameter) for part, parameter in parts]
        # One vector at a time: under vmap layer norm's second derivative is wrong (torch 2.13).
        for gradient in self._graphs or self._gradients():
            products = torch.autograd.grad(
                gradient, self._parameters, shaped, retain_graph=self._graphs is not None
            )
            yield torch.cat([part.reshape(-1) for part in products])

    def _batch_loss(self, batch: Tensor) -> Tensor:
        batch = batch.to(self.like.device)
        logits = self._model(input_ids=batch[:, :-1], use_cache=False).logits.flatten(0, 1)
        losses = functional.cross_entropy(logits, batch[:, 1:].flatten(), reduction="sum")
        return losses / self._tokens

    def _gradients(self) -> Iterator[tuple[Tensor, ...]]:
        for batch in self._batches:
            yield torch.autograd.grad(self._batch_loss(batch), self._parameters, create_graph=True)


def gaussian(like: Tensor, generator: torch.Generator) -> Tensor:
    """A random direction of unit norm, `like` a tensor [P]; drawn on the CPU in float32, so that
    every device sees the same."""
    draw = torch.randn(like.shape, generator=generator, dtype=torch.float32).to(like)
    return functional.normalize(draw, dim=0)


def dot(a: Tensor, b: Tensor) -> float:
    """Scalar product of two vectors [P], summed in float64."""
    return float((a * b).sum(dtype=torch.float64))


def run_probe(
    context: Context[S], probe: Callable[[LossHessian, S], Iterator[Metric]]
) -> Mapping[str, Any]:
    """Measure the job's checkpoints of its input trajectory, in full precision."""
    settings, source = context.settings, Trajectory(context.inputs["trajectory"])
    probes = tokens.blocks(context.input("corpus"), "probe", settings.context, settings.sequences)
    rows, chosen = [], source.at(settings.checkpoints)
    for checkpoint in chosen:
        # Fused attention has no second derivative.
        model = models.load(source.folder(checkpoint), torch.float32, attn_implementation="eager")
        hessian = LossHessian(model, probes, settings.batch, keep_graph=settings.keep_graph)
        rows += [(checkpoint.id, *metric) for metric in probe(hessian, settings)]
        context.progress.maybe(checkpoint.id)
    table = pd.DataFrame(rows, columns=[CHECKPOINT, METRIC, VALUE, ERROR])
    table.to_csv(context.out / VALUES, index=False)
    digests = {checkpoint.id: source.digest(checkpoint) for checkpoint in chosen}
    return trajectory.facts(chosen, digests=digests, seed=source.fact("seed"))
