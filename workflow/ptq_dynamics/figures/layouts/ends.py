"""Metrics of the last checkpoints against the tokens up to there, a line a curve."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.panels import publish
from ptq_dynamics.figures.settings import FigureSettings, in_group
from ptq_dynamics.figures.words import letters


def run(context: Context[FigureSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure. Curves that are named "GROUP: NAME" have a row of panels for every
    group, and the line of their name."""
    curves = Curves(context)
    split = {label: in_group(label) for label in curves.labels}
    groups = list(dict.fromkeys(group for group, _ in split.values()))
    names = list(dict.fromkeys(name for _, name in split.values()))
    wanted = list(curves.wanted())
    panels, parts = [], []
    for letter, (group, (metric, quantizer)) in zip(
        letters(), product(groups, wanted), strict=False
    ):
        panel = curves.panel(letter, metric, quantizer, "Budget (tokens)", group)
        panels.append(replace(panel, tokens_x=True, log_x=True))
        points = curves.ends(letter, metric, quantizer)
        points = points[[split[curve][0] == group for curve in points.curve]]
        parts.append(points.assign(curve=[split[curve][1] for curve in points.curve]))
    return publish(context, panels, parts, names, columns=len(wanted) if len(groups) > 1 else None)
