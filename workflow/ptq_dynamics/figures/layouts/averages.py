"""Losses of quantized weights, or their increase, against those in full precision, of averages and
what is in them."""

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ptq_dynamics.base.fields import Once
from ptq_dynamics.figures.layout import Grouped, Quantizers
from ptq_dynamics.figures.settings import in_group
from ptq_dynamics.measure.names import INCREASE, LOSS, LossOrIncrease

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet

BEFORE = "FP loss (nats/token)"
# Of the points of a group, counted from the lowest loss, those that are in the panel at least, of
# losses fewer, as their curves lie close to each other; and how far it goes beyond the first point
# of the curve that comes in last, as a share of its width.
SHOWN, SHOWN_OF_LOSSES, BEYOND = 0.6, 0.25, 0.05


class Averages(Grouped):
    """A panel for every metric, quantizer and group of curves, of losses with the line of equal
    ones."""

    layout: Literal["averages"]
    quantizers: Quantizers
    metrics: Annotated[tuple[LossOrIncrease, ...], Field(min_length=1), Once]
    quantized = frozenset({LOSS, INCREASE})

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        from ptq_dynamics.figures.style import in_order

        data = sheet.data
        split = {label: in_group(label) for label in data.labels}
        groups = list(dict.fromkeys(group for group, _ in split.values()))
        for metric, quantizer, group in product(self.metrics, data.quantizers, groups):
            points = data.against_loss(metric, quantizer)
            points = points[[split[curve][0] == group for curve in points.curve]]
            panel = data.panel(metric, quantizer, BEFORE, group)
            shown = SHOWN_OF_LOSSES if metric == LOSS else SHOWN
            last = max(points.x.quantile(shown), points.groupby("curve").x.min().max())
            zoom = last + BEYOND * (last - points.x.min())
            panel = replace(panel, zoom=float(zoom), diagonal=metric == LOSS)
            sheet.add(panel, points.assign(curve=[split[curve][1] for curve in points.curve]))
        names = in_order(list(dict.fromkeys(name for _, name in split.values())))
        return sheet.publish(names, len(groups) if len(groups) in (2, 3) else None)
