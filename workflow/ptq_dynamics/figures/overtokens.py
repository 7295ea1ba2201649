"""Error under one quantizer and full-precision loss against tokens: figures 4 and 21."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ptq_dynamics.figures.curves import Curves, footer
from ptq_dynamics.figures.panels import Panel, draw, save
from ptq_dynamics.jobs.context import Context


def draw_over_tokens(context: Context) -> Mapping[str, Any]:
    """Panel (a): quantization error. Panel (b): validation loss. Dotted: the learning rate."""
    curves = Curves(context)
    ((quantizer, settings),) = curves.quantizers.items()
    error = f"{settings['bits']}-bit quantization error"
    panels = [
        Panel.over_tokens("a", f"(a) {error}", f"{error} (%)", percent_y=True),
        Panel.over_tokens("b", "(b) Validation loss", "Validation loss (nats/token)", crop=True),
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
