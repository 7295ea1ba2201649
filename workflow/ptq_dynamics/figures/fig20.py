"""Figure 20: AdamW against AdamC, with the gradient and weight norms along the runs."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ptq_dynamics.figures.curves import Curves, footer
from ptq_dynamics.figures.panels import Panel, draw, save
from ptq_dynamics.jobs.context import Context


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure."""
    curves = Curves(context)
    ((quantizer, settings),) = curves.quantizers.items()
    error = f"{settings['bits']}-bit quantization error"
    panels = [
        Panel.over_tokens("a", f"(a) {error}", f"{error} (%)", percent_y=True),
        Panel.over_tokens("b", "(b) Gradient norm", "L2 norm of the gradient", thin=True),
        Panel.over_tokens("c", "(c) Weight norm", "L2 norm of the weights", thin=True),
    ]
    table = pd.concat(
        [
            curves.against_tokens("a", "quantization_error", quantizer, lineage=True),
            curves.training("b", "gradient_norm", lineage=True),
            curves.training("c", "weight_norm", lineage=True),
            *(curves.learning_rates(panel, lineage=True) for panel in "abc"),
        ]
    )
    save(draw(table, panels, curves.labels, footer(context)), table, context.out, context.name)
    return {"points": len(table)}
