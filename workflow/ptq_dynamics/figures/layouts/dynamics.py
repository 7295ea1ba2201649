"""What runs show while they train, and the errors beside it, against tokens."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.panels import publish
from ptq_dynamics.figures.settings import DynamicsSettings
from ptq_dynamics.figures.words import letters
from ptq_dynamics.measure.names import EIGENVALUES


def run(context: Context[DynamicsSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure, a panel for every metric and quantizer. Dotted: the learning rate."""
    curves = Curves(context)
    lineage, log = context.settings.lineage, context.settings.log
    panels, parts = [], []
    for letter, (metric, quantizer) in zip(letters(), curves.wanted(), strict=False):
        panel = curves.over_tokens(letter, metric, quantizer)
        if metric == EIGENVALUES:
            panel = curves.panel(letter, metric, quantizer, "Rank")
        panels.append(replace(panel, log_y=panel.log_y or log))
        parts.append(curves.points(letter, metric, quantizer, lineage=lineage))
    rated = [panel.name for panel in panels if panel.right]
    parts += [curves.learning_rates(name, lineage=lineage) for name in rated]
    return publish(context, panels, parts, curves.labels, lineage=lineage)
