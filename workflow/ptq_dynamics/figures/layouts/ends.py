"""Metrics of the last checkpoints of runs against their tokens."""

from itertools import product
from typing import TYPE_CHECKING, Literal

from ptq_dynamics.figures.labels import Form
from ptq_dynamics.figures.layout import Evaluations, Layout

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet


class Ends(Layout):
    """A panel for every metric and quantizer, and a row for every group of curves."""

    grouped = True
    layout: Literal["ends"]
    metrics: Evaluations

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        data, groups = sheet.data, sheet.data.groups
        wanted = list(data.wanted())
        for group, (metric, quantizer) in product(groups, wanted):
            points = data.last_of(data.points(metric, quantizer))
            points = points.assign(segment=points.curve, curve=points.curve.map(groups[group]))
            title = f"{group}\n{{}}".lstrip()
            # Panels of losses share a vertical scale, to compare groups.
            # Short budgets have errors that are smaller by orders of magnitude.
            log = bool(quantizer and (points.y > 0).all())
            form: Form = {
                "log_y": log,
                "alike": "" if quantizer else metric,
                "tokens_x": True,
                "log_x": True,
            }
            panel = data.panel(metric, quantizer, "Budget (tokens)", title, **form)
            sheet.add(panel, points.dropna(subset="curve").sort_values(["curve", "x"]))
        return sheet.publish(columns=len(wanted) if len(groups) > 1 else None)
