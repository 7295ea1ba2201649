"""The loss in full precision and under every quantizer, and the errors between."""

from typing import Any, Literal

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.layout import Evaluations, Measured
from ptq_dynamics.measure.names import LOSS, QUANTIZED

WAY = "Share of the end's weights"


class LossesOptions(Strict):
    """The horizontal axis: tokens, or the share of the way along a line between checkpoints."""

    against: Literal["tokens", "share"] = "tokens"


class Losses(Measured):
    """A panel for every metric and quantizer. Dotted, against tokens: the learning rate."""

    layout: Literal["losses"]
    metrics: Evaluations
    quantized = QUANTIZED | {LOSS}
    options: LossesOptions = LossesOptions()

    def draw(self, sheet: Any) -> Any:
        """Draw the figure."""
        data, along = sheet.data, self.options.against == "share"
        for metric, quantizer in data.wanted(quantized_losses=True):
            if along:
                table = data.select(metric, quantizer)
                share = table.step / table.groupby("trajectory").step.transform("max")
                points = data.along(table.assign(share=share), "share")
                sheet.add(data.panel(metric, quantizer, WAY), points)
            else:
                sheet.add(data.over_tokens(metric, quantizer), data.points(metric, quantizer))
        return sheet.publish()
