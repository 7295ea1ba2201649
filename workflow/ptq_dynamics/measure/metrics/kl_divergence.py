"""The Kullback-Leibler divergence of predictions by quantized weights from those in full precision.

It is zero only if all predictions are equal, while losses may agree by chance."""

from typing import TYPE_CHECKING, ClassVar, Literal

from ptq_dynamics.measure.metrics import Column, OfPredictions

if TYPE_CHECKING:
    from torch import Tensor


class KlDivergence(OfPredictions):
    """KL(p ‖ q) in nats of the next token, p in full precision and q quantized."""

    columns: ClassVar[tuple[Column]] = (
        Column("kl_divergence", "{q} KL divergence", "Divergence (nats/token)", quantized=True),
    )

    metric: Literal["kl_divergence"] = "kl_divergence"

    def of(self, full: "Tensor", quantized: "Tensor") -> "Tensor":
        """Return the divergence at each token, computed in float64."""
        p, q = (logits.double().log_softmax(dim=-1) for logits in (full, quantized))
        return (p.exp() * (p - q)).sum(dim=-1)
