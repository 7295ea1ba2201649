"""Error along runs, and quantized against full-precision loss: the layout of figures 6, 19, 22."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ptq_dynamics.figures.curves import Curves, footer
from ptq_dynamics.figures.panels import Panel, draw, save
from ptq_dynamics.jobs.context import Context


def draw_parametric(context: Context, *, losses_of: slice = slice(None)) -> Mapping[str, Any]:
    """Panel (a): error under the first quantizer against tokens. Then, for the quantizers that
    `losses_of` selects: loss after quantization against loss before, with the line x = y."""
    curves = Curves(context)
    quantizers = list(curves.quantizers.items())
    first, settings = quantizers[0]
    error = f"{settings['bits']}-bit quantization error"
    panels = [Panel.over_tokens("a", f"(a) {error}", f"{error} (%)", percent_y=True)]
    parts = [
        curves.against_tokens("a", "quantization_error", first, lineage=True),
        curves.learning_rates("a", lineage=True),
    ]
    for name, (quantizer, settings) in zip("bcdef", quantizers[losses_of], strict=False):
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
