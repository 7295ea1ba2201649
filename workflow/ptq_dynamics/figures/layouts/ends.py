"""Metrics of the last checkpoints against the tokens up to there, a line a curve."""

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Literal

from ptq_dynamics.figures.layout import Evaluations, Grouped
from ptq_dynamics.figures.settings import in_group

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet


class Ends(Grouped):
    """A panel for every metric and quantizer, in a row for every group of curves."""

    layout: Literal["ends"]
    metrics: Evaluations

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        data, wanted = sheet.data, list(sheet.data.wanted())
        split = {label: in_group(label) for label in data.labels}
        groups = list(dict.fromkeys(group for group, _ in split.values()))
        for group, (metric, quantizer) in product(groups, wanted):
            panel = data.panel(metric, quantizer, "Budget (tokens)", group)
            points = data.ends(metric, quantizer)
            points = points[[split[curve][0] == group for curve in points.curve]]
            points = points.assign(curve=[split[curve][1] for curve in points.curve])
            sheet.add(replace(panel, tokens_x=True, log_x=True), points)
        names = list(dict.fromkeys(name for _, name in split.values()))
        return sheet.publish(names, len(wanted) if len(groups) > 1 else None)
