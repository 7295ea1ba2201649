"""Objectives on plain text that change the flatness of minima."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ptq_dynamics.base.fields import Rate
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Batches, Slope, Sloped
from ptq_dynamics.train.objectives.language import OnText, summed_loss

if TYPE_CHECKING:
    from torch import Tensor, nn

Share = Annotated[float, Field(gt=0, le=1)]


class SharpnessAware(OnText, Sloped):
    """Sharpness-aware minimization (SAM, arXiv 2010.01412): the loss at the distance `radius` from
    the weights along the gradient of the whole batch. A `share` below 1 averages this loss and the
    loss at the weights, which adds, to first order, a penalty of radius × share on the norm of the
    gradient (arXiv 2202.03599)."""

    kind: Literal["sharpness-aware"]
    radius: Rate
    share: Share = 1.0

    def loss(self, model: "nn.Module", rows: "Tensor", before: "nn.Module | None") -> "Tensor":
        """Sum the losses of rows, int64 [rows, context + 1], at the weights."""
        return summed_loss(model(rows[:, :-1], use_cache=False).logits, rows[:, 1:])

    def sloped_loss(self, model: "nn.Module", rows: "Tensor", slope: Slope) -> "Tensor":
        """Sum the losses of rows, int64 [rows, context + 1], at the distance."""
        import torch

        weights, slopes = dict(model.named_parameters()), slope.gradient
        scale = self.radius / torch.nn.utils.get_total_norm([*slopes.values()]).clamp(min=1e-12)
        moved = {name: weight + slopes[name] * scale for name, weight in weights.items()}
        options = {"use_cache": False}
        output = torch.func.functional_call(model, moved, (rows[:, :-1],), options)
        away = summed_loss(output.logits, rows[:, 1:])
        # This sum has the loss and the gradient of the whole batch at the weights.
        products = ((weight * slopes[name]).sum() for name, weight in weights.items())
        line = sum(products, start=torch.zeros_like(slope.loss))
        here = slope.loss + line - line.detach()
        return self.share * away + (1 - self.share) * (self.count(rows) / slope.terms) * here


class LabelNoise(OnText):
    """Cross-entropy where a `share` of next tokens is replaced by other tokens of the batch."""

    kind: Literal["label-noise"]
    share: Share

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Batches:
        """Return tokens, and next tokens with noise, int64 [batch, 2, context + 1]."""
        return Noisy(super().data(corpus, context, batch, seed), self.share)

    def count(self, rows: "Tensor") -> int:
        """Return the number of next tokens."""
        return super().count(rows[:, 1])

    def loss(self, model: "nn.Module", rows: "Tensor", before: "nn.Module | None") -> "Tensor":
        """Sum the losses of rows, int64 [rows, 2, context + 1]."""
        return summed_loss(model(rows[:, 0, :-1], use_cache=False).logits, rows[:, 1, 1:])


class Noisy:
    """Batches of other data, int64 [batch, context + 1], beside their copies with noise."""

    def __init__(self, data: Batches, share: float) -> None:
        self._data, self._share = data, share

    def at(self, step: int, rows: Sequence[int] | None = None) -> "Tensor":
        """Return rows (None: all) of a batch. The noise follows from the whole batch, and thus
        depends neither on interruptions of the run nor on the number of processes."""
        import torch

        batch = self._data.at(step)
        targets, chance = batch[:, 1:], torch.Generator().manual_seed(int(batch.sum()))
        is_noise = torch.rand(targets.shape, generator=chance) < self._share
        places = torch.randint(targets.numel(), targets.shape, generator=chance)
        noisy = torch.where(is_noise, targets.flatten()[places], targets)
        both = torch.stack([batch, torch.cat([batch[:, :1], noisy], dim=1)], dim=1)
        return both if rows is None else both[list(rows)]
