"""Metrics that compare predictions by quantized weights with those in full precision."""

from typing import TYPE_CHECKING, ClassVar, Literal

from ptq_dynamics.measure.metrics import Column, OfPredictions

if TYPE_CHECKING:
    from torch import Tensor


class KlDivergence(OfPredictions):
    """KL(p ‖ q) in nats of the next token, p in full precision and q quantized. It is zero only if
    all predictions are equal, while losses may agree by chance."""

    columns: ClassVar[tuple[Column]] = (
        Column("kl_divergence", "{q} KL divergence", "Divergence (nats/token)", quantized=True),
    )

    metric: Literal["kl_divergence"] = "kl_divergence"

    def of(self, full: "Tensor", quantized: "Tensor") -> "Tensor":
        """Return the divergence at each token, computed in float64."""
        p, q = (logits.double().log_softmax(dim=-1) for logits in (full, quantized))
        return (p.exp() * (p - q)).sum(dim=-1)


class Top1Agreement(OfPredictions):
    """The share of positions where the most probable next token is the same."""

    columns: ClassVar[tuple[Column]] = (
        Column("top1_agreement", "{q} top-1 agreement", "Share of tokens", quantized=True),
    )

    metric: Literal["top1_agreement"] = "top1_agreement"

    def of(self, full: "Tensor", quantized: "Tensor") -> "Tensor":
        """Return 1 at each token where the predictions agree, else 0."""
        return (full.argmax(dim=-1) == quantized.argmax(dim=-1)).double()
