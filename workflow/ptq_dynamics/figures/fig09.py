"""Figure 9: sharpness, trace and spectrum of the Hessian along the rainbow."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ptq_dynamics.figures.curves import Curves, footer
from ptq_dynamics.figures.panels import Panel, draw, save
from ptq_dynamics.jobs.context import Context


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure."""
    curves = Curves(context)
    spectrum = curves.metrics("eigenvalue_")
    panels = [
        Panel.over_tokens("a", "(a) Sharpness", "Top Hessian eigenvalue"),
        Panel.over_tokens("b", "(b) Trace", "Hessian trace"),
        Panel.over_tokens("c", f"(c) Top {len(spectrum)} eigenvalues", "Eigenvalues", thin=True),
    ]
    table = pd.concat(
        [
            curves.against_tokens("a", "sharpness", None),
            curves.against_tokens("b", "hessian_trace", None),
            *(curves.against_tokens("c", metric, None, band=False) for metric in spectrum),
            *(curves.learning_rates(panel) for panel in "abc"),
        ]
    )
    save(draw(table, panels, curves.labels, footer(context)), table, context.out, context.name)
    return {"points": len(table)}
