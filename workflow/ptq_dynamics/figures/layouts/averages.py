"""Losses of quantized averages and their ingredients against losses in full precision."""

from itertools import product
from typing import TYPE_CHECKING, Literal

from ptq_dynamics.figures.labels import Form
from ptq_dynamics.figures.layout import BEFORE, Layout, Some
from ptq_dynamics.measure.names import LOSS

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet

# A panel shows at least these shares of points with the lowest losses, and extends by a margin.
SHOWN, SHOWN_OF_LOSSES, BEYOND = 0.6, 0.25, 0.05


class Averages(Layout):
    """A panel for every metric, quantizer and group of curves."""

    grouped = True
    layout: Literal["averages"]
    quantizers: Some[str]
    metrics: Some[Literal["loss", "loss_increase"]]

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        import numpy as np
        import pandas as pd

        data, groups = sheet.data, sheet.data.groups
        for metric, quantizer, group in product(self.metrics, data.quantizers, groups):
            points = data.against_loss(metric, quantizer)
            # Averages of one step go from short intervals to long ones.
            number = points.checkpoint_id.str.extract(r"^every-(\d+)$", expand=False).astype(float)
            points = points.iloc[np.lexsort((number, pd.factorize(points.segment)[0]))]
            points = points.assign(curve=points.curve.map(groups[group])).dropna(subset="curve")
            shown = SHOWN_OF_LOSSES if metric == LOSS else SHOWN
            last = max(points.x.quantile(shown), points.groupby("curve").x.min().max())
            title = f"{group}\n{{}}".lstrip()
            zoom = float(last + BEYOND * (last - points.x.min()))
            form: Form = {"zoom": zoom, "diagonal": metric == LOSS, "thin": True}
            sheet.add(data.panel(metric, quantizer, BEFORE, title, **form), points)
        return sheet.publish(columns=len(groups) if len(groups) in (2, 3) else None)
