"""Figure 6: four peak learning rates. Error along the run, and quantized against full loss."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ptq_dynamics.figures.curves import Curves, footer
from ptq_dynamics.figures.panels import Panel, draw, save
from ptq_dynamics.stage import Context


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure; the first quantizer is that of panel (a)."""
    curves = Curves(context)
    quantizers = curves.quantizers
    first = next(iter(quantizers))
    error = f"{quantizers[first]['bits']}-bit quantization error"
    panels = [Panel.over_tokens("a", f"(a) {error}", f"{error} (%)", percent_y=True)]
    parts = [
        curves.against_tokens("a", "quantization_error", first, lineage=True),
        curves.learning_rates("a", lineage=True),
    ]
    for name, (quantizer, settings) in zip("bc", quantizers.items(), strict=True):
        bits = f"{settings['bits']}-bit"
        panels.append(
            Panel(
                name,
                f"({name}) Full precision to {bits} loss",
                x="Validation loss, full precision (nats/token)",
                y=f"Validation loss, {bits} (nats/token)",
                diagonal=True,
            )
        )
        parts.append(curves.against_loss(name, quantizer, lineage=True))
    table = pd.concat(parts)
    save(draw(table, panels, curves.labels, footer(context)), table, context.out, context.name)
    return {"points": len(table)}
