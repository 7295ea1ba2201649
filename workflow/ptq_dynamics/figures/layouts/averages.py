"""Losses of quantized weights, or their increase, against those in full precision, of averages and
what is in them."""

from itertools import product
from typing import Any, Literal

from ptq_dynamics.figures.layout import BEFORE, Layout, Some
from ptq_dynamics.measure.names import LOSS

# Of the points of a group, counted from the lowest loss, those that are in the panel at least, of
# losses fewer, as their curves lie close to each other; and how far it goes beyond the first point
# of the curve that comes in last, as a share of its width.
SHOWN, SHOWN_OF_LOSSES, BEYOND = 0.6, 0.25, 0.05


class Averages(Layout):
    """A panel for every metric, quantizer and group of curves, of losses with the line of equal
    ones."""

    grouped = True
    layout: Literal["averages"]
    quantizers: Some[str]
    metrics: Some[Literal["loss", "loss_increase"]]

    def draw(self, sheet: Any) -> Any:
        """Draw the figure."""
        data, groups = sheet.data, sheet.data.groups
        for metric, quantizer, group in product(self.metrics, data.quantizers, groups):
            points = data.against_loss(metric, quantizer)
            points = points.assign(curve=points.curve.map(groups[group])).dropna(subset="curve")
            shown = SHOWN_OF_LOSSES if metric == LOSS else SHOWN
            last = max(points.x.quantile(shown), points.groupby("curve").x.min().max())
            title = f"{group}\n{{}}".lstrip()
            form = {"zoom": float(last + BEYOND * (last - points.x.min()))}
            form |= {"diagonal": metric == LOSS}
            sheet.add(data.panel(metric, quantizer, BEFORE, title, **form), points)
        return sheet.publish(columns=len(groups) if len(groups) in (2, 3) else None)
