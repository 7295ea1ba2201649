"""The Hessian of a causal language model's loss, and the stage's part that all probes share."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from ptq_dynamics import models
from ptq_dynamics.base import needs
from ptq_dynamics.corpus import tokens
from ptq_dynamics.curvature.probes import ProbeSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import CHECKPOINT_ID, ERROR, METRIC, VALUE, VALUES
from ptq_dynamics.trajectories import trajectory
from ptq_dynamics.trajectories.trajectory import Trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

S = TypeVar("S", bound=ProbeSettings)
# Name, value, and standard error if there is one.
Value = tuple[str, float, float | None]
Product = Callable[[Tensor], Tensor]


class LossHessian:
    """Hessian of the mean next-token cross-entropy (nats) over probes, [n, context] int64.

    `keep_graph` keeps the gradient's graph of each micro-batch: products are faster, and memory
    grows with n. Vectors are `like` a tensor [P], in the order of `landscape.flatten`."""

    def __init__(
        self, model: "PreTrainedModel", probes: Tensor, batch: int, keep_graph: bool = True
    ) -> None:
        self._model, self._batches = model, torch.split(probes, batch)
        self._tokens = probes.shape[0] * (probes.shape[1] - 1)
        self._parameters = [p for _, p in sorted(model.named_parameters()) if p.requires_grad]
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self.like = self._parameters[0].new_empty(()).expand(sum(self._sizes))
        self._graphs = list(self._gradients()) if keep_graph else None

    def __call__(self, v: Tensor) -> Tensor:
        """Return H v, the exact mean over all tokens, for v [P]."""
        return sum(self._products(v), torch.zeros_like(v))

    def form(self, v: Tensor) -> Tensor:
        """Return v'H v for each micro-batch, float64 [b], for v [P]."""
        parts = [dot(v, part) for part in self._products(v)]
        return torch.tensor(parts, dtype=torch.float64) * len(parts)

    def _products(self, v: Tensor) -> Iterator[Tensor]:
        parts = zip(v.split_with_sizes(self._sizes), self._parameters, strict=True)
        shaped = [part.view_as(parameter) for part, parameter in parts]
        # Without vmap, where the second derivative of layer norm is wrong (torch 2.13).
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
    """Return a random unit vector `like` a tensor [P], drawn on the CPU for all devices."""
    draw = torch.randn(like.shape, generator=generator, dtype=torch.float32).to(like)
    return functional.normalize(draw, dim=0)


def dot(a: Tensor, b: Tensor) -> float:
    """Return the scalar product of two vectors [P], summed in float64."""
    return float((a * b).sum(dtype=torch.float64))


def run_probe(
    context: Context[S], probe: Callable[[LossHessian, S], Iterator[Value]]
) -> Mapping[str, object]:
    """Write the metrics of `probe` for each checkpoint, in full precision."""
    settings, source = context.settings, Trajectory(context.inputs[needs.TRAJECTORY])
    corpus = context.input(needs.CORPUS)
    probes = tokens.blocks(corpus, "probe", settings.context, settings.sequences)
    rows, chosen = [], source.at(settings.checkpoints)
    for checkpoint in chosen:
        # Fused attention has no second derivative.
        model = models.load(source.folder(checkpoint), torch.float32, attn_implementation="eager")
        models.require_eager(model)
        hessian = LossHessian(model, probes, settings.batch, settings.keep_graph)
        rows += [(checkpoint.id, *metric) for metric in probe(hessian, settings)]
        context.progress.maybe(checkpoint.id)
    table = pd.DataFrame(rows, columns=[CHECKPOINT_ID, METRIC, VALUE, ERROR])
    table.to_csv(context.out / VALUES, index=False)
    digests = {checkpoint.id: source.digest(checkpoint) for checkpoint in chosen}
    return trajectory.facts(chosen, digests=digests, seed=source.fact("seed"))
