"""Errors along runs, against tokens and against the loss in full precision."""

from typing import Any, Literal, Self

from pydantic import model_validator

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.layout import BEFORE, Evaluations, Measured, Some
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR, QUANTIZED


class ParametricOptions(Strict):
    """`losses_of`: quantizers under which the loss is drawn; all of the figure's unless stated."""

    losses_of: Some[str] | None = None


class Parametric(Measured):
    """First every metric but the loss under the first quantizer, against tokens; then the
    quantization error against the loss in full precision, a panel a quantizer, in the range of
    losses that all curves come to. Dotted: the learning rate."""

    layout: Literal["parametric"]
    quantizers: Some[str]
    metrics: Evaluations
    quantized = QUANTIZED | {LOSS}
    options: ParametricOptions = ParametricOptions()

    @model_validator(mode="after")
    def _knows_quantizers(self) -> Self:
        unknown = {*(self.options.losses_of or ())} - {*self.quantizers}
        if unknown:
            raise ValueError(f"options.losses_of: {min(unknown)!r} is none of its quantizers")
        return self

    def draw(self, sheet: Any) -> Any:
        """Draw the figure."""
        data, first = sheet.data, self.quantizers[0]
        for metric in self.metrics:
            if metric != LOSS:
                sheet.add(data.over_tokens(metric, first), data.points(metric, first))
        for quantizer in self.options.losses_of or self.quantizers:
            points = data.against_loss(QUANTIZATION_ERROR, quantizer)
            # Below it, every curve has its lowest quarter of points.
            zoom = float(points.groupby("curve").x.quantile(0.25).max())
            words = (QUANTIZATION_ERROR, quantizer, BEFORE, "{} vs. loss")
            sheet.add(data.panel(*words, zoom=zoom), points)
        return sheet.publish()
