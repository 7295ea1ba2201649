"""Every metric against tokens, a panel for each quantizer or one in full precision."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.panels import publish
from ptq_dynamics.figures.settings import OverTokensSettings, under
from ptq_dynamics.figures.words import letters
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.measure.names import LOSS

PHASE = "Share of the phase"


def run(context: Context[OverTokensSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure. Dotted: the learning rate."""
    settings, curves = context.settings, Curves(context)
    panels, parts, labels = [], [], list(curves.labels)
    names, wanted = letters(), list(curves.wanted())
    for metric, quantizer in wanted:
        letter = next(names)
        panels.append(curves.over_tokens(letter, metric, quantizer))
        if metric == LOSS and settings.quantized_losses:
            # What comes later is drawn above: they may differ by less than a line is wide.
            for each, called in curves.called.items():
                points = curves.points(letter, metric, each, lineage=True)
                parts.append(points.assign(curve=[under(curve, called) for curve in points.curve]))
                labels += [under(label, called) for label in curves.labels]
            panels[-1] = replace(panels[-1], title=f"({letter}) Loss")
        parts.append(curves.points(letter, metric, quantizer, lineage=True))
        parts.append(curves.learning_rates(letter, lineage=True))
    if settings.phases and any(run.trunk for run in settings.runs):
        for metric, quantizer in wanted:
            letter = next(names)
            panel = curves.panel(letter, metric, quantizer, PHASE)
            panels.append(replace(panel, title=f"{panel.title} along phases"))
            parts.append(curves.against_phase(letter, metric, quantizer))
    # The same metric in all panels: one scale compares them.
    one_scale = len({metric for metric, _ in wanted}) == 1 and len(panels) > 1
    return publish(context, panels, parts, labels, one_scale=one_scale, lineage=True)
