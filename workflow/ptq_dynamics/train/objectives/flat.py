"""Objectives on plain text that change the flatness of minima."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ptq_dynamics.base.fields import Rate
from ptq_dynamics.train.objectives.language import OnText, losses

Share = Annotated[float, Field(gt=0, le=1)]


class SharpnessAware(OnText):
    """Sharpness-aware minimization (SAM, arXiv 2010.01412): the loss at the distance `radius` from
    the weights along their gradient. A `share` below 1 averages this loss and the loss at the
    weights, which adds, to first order, a penalty of radius × share on the norm of the gradient
    (arXiv 2202.03599)."""

    kind: Literal["sharpness-aware"]
    radius: Rate
    share: Share = 1.0

    def loss(self, model: Any, rows: Any, before: Any) -> Any:
        """Sum the losses of rows, int64 [rows, context + 1], at a distance along their own
        gradient."""
        import torch

        here = losses(model, rows, rows[:, 1:])
        weights = dict(model.named_parameters())
        slopes = dict(zip(weights, torch.autograd.grad(here, [*weights.values()]), strict=True))
        scale = self.radius / torch.nn.utils.get_total_norm([*slopes.values()]).clamp(min=1e-12)
        moved = {name: weight + slopes[name] * scale for name, weight in weights.items()}

        def there(*arguments: Any, **options: Any) -> Any:
            return torch.func.functional_call(model, moved, arguments, options)

        away = losses(there, rows, rows[:, 1:])
        # Autograd freed the graph of `here`; `line` restores its gradient.
        line = sum((weight * slopes[name]).sum() for name, weight in weights.items())
        return self.share * away + (1 - self.share) * (here.detach() + line - line.detach())


class LabelNoise(OnText):
    """Cross-entropy where a `share` of next tokens is replaced by other tokens of the batch."""

    kind: Literal["label-noise"]
    share: Share

    def loss(self, model: Any, rows: Any, before: Any) -> Any:
        """Sum the losses of rows, int64 [rows, context + 1]."""
        import torch

        targets = rows[:, 1:]
        # The noise follows from the rows, so that an interrupted run resumes to the same bits.
        chance = torch.Generator(rows.device).manual_seed(int(rows.sum()))
        look: dict[str, Any] = {"generator": chance, "device": rows.device}
        is_noise = torch.rand(targets.shape, **look) < self.share
        others = targets.flatten()[torch.randint(targets.numel(), targets.shape, **look)]
        return losses(model, rows, torch.where(is_noise, others, targets))
