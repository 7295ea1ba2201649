"""Figure 4: the rainbow. Error and loss along a constant run and its cooldowns."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ptq_dynamics.figures.curves import Curves, footer
from ptq_dynamics.figures.panels import Panel, draw, save
from ptq_dynamics.stage import Context


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure."""
    curves = Curves(context)
    ((quantizer, settings),) = curves.quantizers.items()
    bits = settings["bits"]
    error = f"{bits}-bit quantization error"
    panels = [
        Panel.over_tokens("a", f"(a) {error}", f"{error} (%)", percent_y=True),
        Panel.over_tokens("b", "(b) Validation loss", "Validation loss (nats/token)"),
    ]
    table = pd.concat(
        [
            curves.against_tokens("a", "quantization_error", quantizer),
            curves.learning_rates("a"),
            curves.against_tokens("b", "loss", None),
            curves.learning_rates("b"),
        ]
    )
    save(draw(table, panels, curves.labels, footer(context)), table, context.out, context.name)
    return {"points": len(table)}
