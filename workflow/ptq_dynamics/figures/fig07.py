"""Figure 7: averaging the weights of a constant run against decaying its learning rate."""

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
    bits = f"{context.config['quantizers'][quantizer]['bits']}-bit"
    tokens = {"x": "Training tokens", "tokens_x": True, "right": "Learning rate"}
    panels = [
        Panel("a", "(a) Full-precision loss", y="Validation loss (nats/token)", **tokens),
        Panel("b", f"(b) {bits} loss", y=f"Validation loss, {bits} (nats/token)", **tokens),
        Panel(
            "c",
            f"(c) {bits} quantization error",
            y=f"{bits} quantization error (%)",
            percent_y=True,
            **tokens,
        ),
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
