"""Errors of runs against tokens, and errors and losses against the loss in full precision."""

from itertools import product
from typing import TYPE_CHECKING, Literal, Self

from pydantic import model_validator

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.labels import Form
from ptq_dynamics.figures.layout import BEFORE, Evaluations, Layout, Some
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet


# Panels of losses go on beyond the ends of curves by a share of the range of ends, or of the loss.
ROOM, LEAST = 0.3, 0.01


class ParametricOptions(Strict):
    """`losses_of`: quantizers with panels of losses (default: all)."""

    losses_of: Some[str] | None = None


class Parametric(Layout):
    """Metrics under the first quantizer against tokens, then quantized losses against the loss in
    full precision; in the next row the other quantizers, then quantization errors."""

    layout: Literal["parametric"]
    quantizers: Some[str]
    metrics: Evaluations
    options: ParametricOptions = ParametricOptions()

    @model_validator(mode="after")
    def _knows_quantizers(self) -> Self:
        unknown = {*(self.options.losses_of or ())} - {*self.quantizers}
        if unknown:
            raise ValueError(f"options.losses_of: {min(unknown)!r} is not one of quantizers")
        return self

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        data, (first, *others) = sheet.data, self.quantizers
        over = [metric for metric in self.metrics if metric != LOSS]
        for metric in over:
            sheet.add(data.run_panel(metric, first), data.points(metric, first))
        for shown, title in ((LOSS, "FP to {}"), (QUANTIZATION_ERROR, "{} vs. loss")):
            for quantizer in self.options.losses_of or self.quantizers:
                points = data.against_loss(shown, quantizer)
                # Losses differ little from the diagonal, except beside the ends of curves.
                curves = points.groupby("curve").x
                lowest = curves.min()
                room = max(ROOM * (lowest.max() - lowest.min()), LEAST * lowest.max())
                zoom = float(lowest.max() + room if shown == LOSS else curves.quantile(0.25).max())
                form: Form = {"zoom": zoom, "diagonal": shown == LOSS, "thin": True}
                sheet.add(data.panel(shown, quantizer, BEFORE, title, **form), points)
            for metric, quantizer in product(over, others):
                sheet.add(
                    data.run_panel(metric, quantizer),
                    data.points(metric, quantizer),
                )
            others = []
        return sheet.publish()
