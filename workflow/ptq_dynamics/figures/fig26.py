"""Figure 26: sharpness and trace of the Hessian across peak learning rates."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ptq_dynamics.figures.curves import Curves, footer
from ptq_dynamics.figures.panels import Panel, draw, save
from ptq_dynamics.jobs.context import Context


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure."""
    curves = Curves(context)
    panels = [
        Panel.over_tokens("a", "(a) Sharpness", "Top Hessian eigenvalue", log_y=True),
        Panel.over_tokens("b", "(b) Trace", "Hessian trace", log_y=True),
    ]
    table = pd.concat(
        [
            curves.against_tokens("a", "sharpness", None, lineage=True),
            curves.against_tokens("b", "hessian_trace", None, lineage=True),
            *(curves.learning_rates(panel, lineage=True) for panel in "ab"),
        ]
    )
    save(draw(table, panels, curves.labels, footer(context)), table, context.out, context.name)
    return {"points": len(table)}
