"""Figure 7: averaging the weights of a constant run against decaying its learning rate."""

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
    bits = f"{settings['bits']}-bit"
    error = f"{bits} quantization error"
    panels = [
        Panel.over_tokens(
            "a", "(a) Full-precision loss", "Validation loss (nats/token)", crop=True
        ),
        Panel.over_tokens(
            "b", f"(b) {bits} loss", f"Validation loss, {bits} (nats/token)", crop=True
        ),
        Panel.over_tokens("c", f"(c) {error}", f"{error} (%)", percent_y=True),
    ]
    table = pd.concat(
        [
            curves.against_tokens("a", "loss", None),
            curves.against_tokens("b", "loss", quantizer),
            curves.against_tokens("c", "quantization_error", quantizer),
            *(curves.learning_rates(panel) for panel in "abc"),
        ]
    )
    save(draw(table, panels, curves.labels, footer(context)), table, context.out, context.name)
    return {"points": len(table)}
