"""The loss in full precision and under every quantizer, and the errors between."""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.panels import publish
from ptq_dynamics.figures.settings import LossesSettings
from ptq_dynamics.figures.words import letters
from ptq_dynamics.jobs.context import Context

WAY = "Share of the end's weights"


def run(context: Context[LossesSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure, against tokens with the learning rate dotted, or against the share of
    the way along a line between checkpoints."""
    curves = Curves(context)
    along = context.settings.against == "share"
    panels, parts = [], []
    for letter, (metric, quantizer) in zip(
        letters(), curves.wanted(quantized_losses=True), strict=False
    ):
        if along:
            panels.append(curves.panel(letter, metric, quantizer, WAY))
            parts.append(curves.against_share(letter, metric, quantizer))
        else:
            panels.append(curves.over_tokens(letter, metric, quantizer))
            parts.append(curves.points(letter, metric, quantizer))
    if not along:
        parts += [curves.learning_rates(panel.name) for panel in panels]
    return publish(context, panels, parts, curves.labels)
