"""Every metric against tokens, a panel for each quantizer or one in full precision."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.panel import Panel
from ptq_dynamics.figures.panels import publish
from ptq_dynamics.figures.settings import OverTokensSettings, under
from ptq_dynamics.figures.style import whose
from ptq_dynamics.figures.words import letters
from ptq_dynamics.measure.names import LOSS

PHASE = "Share of the phase"
# Points, of lines that may lie on each other.
WIDEST, NARROWEST = 3.2, 0.8


def run(context: Context[OverTokensSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure. Dotted: the learning rate."""
    settings, curves = context.settings, Curves(context)
    panels, parts, labels = list[Panel](), list[pd.DataFrame](), list(curves.labels)
    names, wanted = letters(), list(curves.wanted())
    for metric, quantizer in wanted:
        letter = next(names)
        panels.append(curves.over_tokens(letter, metric, quantizer))
        if metric == LOSS and settings.quantized_losses:
            found, widths = _quantized_losses(curves, letter)
            parts += found
            labels += [label for label in widths if label not in labels]
            panels[-1] = replace(panels[-1], title=f"({letter}) Loss", widths=widths)
        else:
            parts.append(curves.points(letter, metric, quantizer, lineage=True))
        parts.append(curves.learning_rates(letter, lineage=True))
    # The same metric in all panels: one scale compares them.
    one_scale = len({metric for metric, _ in wanted}) == 1
    if not settings.phases or not any(run.trunk for run in settings.runs):
        one_scale &= len(panels) > 1
        return publish(context, panels, parts, labels, one_scale=one_scale, lineage=True)
    # What branches off has panels of its own.
    trunks = {run.name for run in settings.runs if run.trunk is None}
    parts = [part[part.segment.isin(trunks) | (part.axis == "right")] for part in parts]
    for metric, quantizer in wanted:
        points = curves.against_phase("", metric, quantizer)
        of_which = pd.Series([whose(curve) for curve in points.curve], points.index, dtype=object)
        for curve, part in points.groupby(of_which, sort=False):
            letter = next(names)
            panels.append(curves.panel(letter, metric, quantizer, PHASE, str(curve)))
            parts.append(part.assign(panel=letter))
    return publish(
        context,
        panels,
        parts,
        labels,
        columns=3,
        one_scale=one_scale,
        lineage=True,
        opening=2 if len(wanted) == 1 else 1,
    )


def _quantized_losses(curves: Curves, letter: str) -> tuple[list[pd.DataFrame], dict[str, float]]:
    """The points of a panel of the loss in full precision and under every quantizer, and how wide
    the lines of its curves are: with ever fewer bits narrower, and above those with more, as they
    may differ by less than a line is wide."""
    parts = [curves.points(letter, LOSS, None, lineage=True)]
    widths = dict.fromkeys(curves.labels, WIDEST)
    ordered = sorted(curves.quantizers.values(), key=lambda shown: -shown.bits)
    for number, shown in enumerate(ordered, start=1):
        called = curves.called[shown.name]
        points = curves.points(letter, LOSS, shown.name, lineage=True)
        parts.append(points.assign(curve=[under(curve, called) for curve in points.curve]))
        width = WIDEST + (NARROWEST - WIDEST) * number / len(ordered)
        widths |= dict.fromkeys([under(label, called) for label in curves.labels], width)
    return parts, widths
