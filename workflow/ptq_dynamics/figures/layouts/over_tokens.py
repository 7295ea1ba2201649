"""Every metric against tokens, a panel for each quantizer or one in full precision."""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.panels import publish
from ptq_dynamics.figures.settings import FigureSettings
from ptq_dynamics.figures.words import letters
from ptq_dynamics.jobs.context import Context


def run(context: Context[FigureSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure. Dotted: the learning rate."""
    curves = Curves(context)
    panels, parts = [], []
    for letter, (metric, quantizer) in zip(letters(), curves.wanted(), strict=False):
        panels.append(curves.over_tokens(letter, metric, quantizer))
        parts.append(curves.points(letter, metric, quantizer, lineage=True))
        parts.append(curves.learning_rates(letter, lineage=True))
    # The same metric in all panels: one scale compares them.
    one_scale = len({metric for metric, _ in curves.wanted()}) == 1 and len(panels) > 1
    return publish(context, panels, parts, curves.labels, one_scale=one_scale, lineage=True)
