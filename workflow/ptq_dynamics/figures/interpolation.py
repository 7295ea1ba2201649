"""Extra figure: the loss on the line from averaged to decayed weights."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ptq_dynamics.figures.curves import Curves, footer
from ptq_dynamics.figures.panels import Panel, draw, save
from ptq_dynamics.jobs.context import Context


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure; the horizontal axis is the share of the way."""
    curves = Curves(context)
    ((quantizer, settings),) = curves.quantizers.items()
    bits = f"{settings['bits']}-bit"
    way = "Share of the way from LAWA (0) to decay (1)"
    panels = [
        Panel("a", "(a) Full-precision loss", way, "Validation loss (nats/token)"),
        Panel("b", f"(b) {bits} loss", way, f"Validation loss, {bits} (nats/token)"),
        Panel("c", f"(c) {bits} quantization error", way, "Quantization error (%)", percent_y=True),
    ]
    table = pd.concat(
        [
            curves.against_share("a", "loss", None),
            curves.against_share("b", "loss", quantizer),
            curves.against_share("c", "quantization_error", quantizer),
        ]
    )
    save(draw(table, panels, curves.labels, footer(context)), table, context.out, context.name)
    return {"points": len(table)}
