"""Figure 5: the replication of Kumar et al., error against the budget of whole runs."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ptq_dynamics.figures.curves import Curves, footer
from ptq_dynamics.figures.panels import Panel, draw, save
from ptq_dynamics.jobs.context import Context


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure, a row of panels for every model size.

    A curve's label is "SIZE: SCHEDULE"; its points are the ends of its trajectories.
    """
    curves = Curves(context)
    sizes = list(dict.fromkeys(label.split(": ")[0] for label in curves.labels))
    panels, parts = [], []
    letters = iter("abcdefghijkl")
    for size in sizes:
        wanted = [(q, "loss_increase", f"{s['bits']}-bit") for q, s in curves.quantizers.items()]
        for quantizer, metric, bits in [*wanted, (None, "loss", "full-precision")]:
            name = next(letters)
            increase = f"{bits} loss increase δ (nats/token)"
            label = increase if quantizer else "Validation loss (nats/token)"
            title = f"({name}) {size}, {bits + ' error' if quantizer else 'loss'}"
            panels.append(Panel(name, title, "Budget in training tokens", label, tokens_x=True))
            points = curves.ends(name, metric, quantizer)
            parts.append(points[points.curve.str.startswith(f"{size}: ")])
    table = pd.concat(parts)
    table["curve"] = table["curve"].str.split(": ").str[1]
    labels = list(dict.fromkeys(label.split(": ")[1] for label in curves.labels))
    save(draw(table, panels, labels, footer(context)), table, context.out, context.name)
    return {"points": len(table)}
