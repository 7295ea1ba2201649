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
    (quantizer,) = context.config["quantizers"]
    tokens = {"x": "Training tokens", "tokens_x": True, "right": "Learning rate"}
    bits = context.config["quantizers"][quantizer]["bits"]
    error = f"{bits}-bit quantization error"
    panels = [
        Panel("a", f"(a) {error}", y=f"{error} (%)", percent_y=True, **tokens),
        Panel("b", "(b) Validation loss", y="Validation loss (nats/token)", **tokens),
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
