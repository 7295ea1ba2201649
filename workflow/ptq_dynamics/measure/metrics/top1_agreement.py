"""How often quantized weights and those in full precision predict the same token."""

from typing import TYPE_CHECKING, ClassVar, Literal

from ptq_dynamics.measure.metrics import Column, OfPredictions

if TYPE_CHECKING:
    from torch import Tensor


class Top1Agreement(OfPredictions):
    """The share of positions where the most probable next token is the same."""

    columns: ClassVar[tuple[Column]] = (
        Column("top1_agreement", "{q} top-1 agreement", "Share of tokens", quantized=True),
    )

    metric: Literal["top1_agreement"] = "top1_agreement"

    def of(self, full: "Tensor", quantized: "Tensor") -> "Tensor":
        """Return 1 at each token where the predictions agree, else 0."""
        return (full.argmax(dim=-1) == quantized.argmax(dim=-1)).double()
