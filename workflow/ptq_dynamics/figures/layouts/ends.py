"""Metrics of the last checkpoints against the tokens up to there, a line a curve."""

from dataclasses import replace
from itertools import product
from typing import Any, Literal

from ptq_dynamics.figures.layout import Evaluations, GroupedCurves


class Ends(GroupedCurves):
    """A panel for every metric and quantizer, in a row for every group of curves."""

    layout: Literal["ends"]
    metrics: Evaluations

    def draw(self, sheet: Any) -> Any:
        """Draw the figure."""
        from ptq_dynamics.figures.curves import last_of

        data, groups = sheet.data, self.groups(sheet.data.labels)
        wanted = list(data.wanted())
        for group, (metric, quantizer) in product(groups, wanted):
            last = last_of(data.points(metric, quantizer))
            points = last.assign(segment=last.curve).sort_values(["curve", "x"], kind="stable")
            panel = data.panel(metric, quantizer, "Budget (tokens)", group)
            panel = replace(panel, tokens_x=True, log_x=True)
            sheet.add(panel, self.of_group(group, points))
        return sheet.publish(self.names(data.labels), len(wanted) if len(groups) > 1 else None)
