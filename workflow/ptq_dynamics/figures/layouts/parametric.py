"""Errors along runs, and losses after quantization against those before it."""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.panels import Panel, publish
from ptq_dynamics.figures.settings import ParametricSettings
from ptq_dynamics.figures.words import letters
from ptq_dynamics.jobs.context import Context


def run(context: Context[ParametricSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure. First every metric but the loss under the first quantizer, against
    tokens; then losses with the line x = y, a panel a quantizer."""
    curves = Curves(context)
    names = letters()
    panels, parts = [], []
    first = next(iter(curves.quantizers))
    for metric in context.settings.metrics:
        if metric == "loss":
            continue
        letter = next(names)
        panels.append(curves.over_tokens(letter, metric, first))
        parts.append(curves.points(letter, metric, first, lineage=True))
        parts.append(curves.learning_rates(letter, lineage=True))
    for quantizer in context.settings.losses_of:
        letter, called = next(names), curves.called[quantizer]
        panels.append(
            Panel(
                letter,
                f"({letter}) Full precision to {called} loss",
                x="Full-precision loss (nats/token)",
                y=f"{called} loss (nats/token)",
                diagonal=True,
            )
        )
        parts.append(curves.against_loss(letter, quantizer, lineage=True))
    return publish(context, panels, parts, curves.labels)
