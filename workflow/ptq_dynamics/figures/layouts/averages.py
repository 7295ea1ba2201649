"""Losses of quantized weights, or their increase, against those in full precision, of averages and
what is in them."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.panels import publish
from ptq_dynamics.figures.settings import FigureSettings, in_group
from ptq_dynamics.figures.style import in_order
from ptq_dynamics.figures.words import letters
from ptq_dynamics.measure.names import LOSS

BEFORE = "FP loss (nats/token)"
# Of the points of a group, counted from the lowest loss, those that are in the panel at least, of
# losses fewer, as their curves lie close to each other; and how far it goes beyond the first point
# of the curve that comes in last, as a share of its width.
SHOWN, SHOWN_OF_LOSSES, BEYOND = 0.6, 0.25, 0.05


def run(context: Context[FigureSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure, a panel for every metric, quantizer and group, of losses with the
    line of equal ones. Curves that are named "GROUP: NAME" have a panel for every group, and the
    line of their name."""
    curves = Curves(context)
    split = {label: in_group(label) for label in curves.labels}
    groups = list(dict.fromkeys(group for group, _ in split.values()))
    names = in_order(list(dict.fromkeys(name for _, name in split.values())))
    panels, parts = [], []
    for letter, (metric, quantizer, group) in zip(
        letters(), product(context.settings.metrics, curves.quantizers, groups), strict=False
    ):
        points = curves.against_loss(letter, metric, quantizer)
        points = points[[split[curve][0] == group for curve in points.curve]]
        panel = curves.panel(letter, metric, quantizer, BEFORE, group)
        shown = SHOWN_OF_LOSSES if metric == LOSS else SHOWN
        last = max(points.x.quantile(shown), points.groupby("curve").x.min().max())
        zoom = last + BEYOND * (last - points.x.min())
        panels.append(replace(panel, zoom=float(zoom), diagonal=metric == LOSS))
        parts.append(points.assign(curve=[split[curve][1] for curve in points.curve]))
    return publish(
        context, panels, parts, names, columns=len(groups) if len(groups) in (2, 3) else None
    )
