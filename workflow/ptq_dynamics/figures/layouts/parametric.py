"""Errors along runs, against tokens and against the loss in full precision."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.panels import publish
from ptq_dynamics.figures.settings import ParametricSettings
from ptq_dynamics.figures.words import letters
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR

BEFORE = "FP loss (nats/token)"


def run(context: Context[ParametricSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure. First every metric but the loss under the first quantizer, against
    tokens; then the quantization error against the loss in full precision, a panel a quantizer, in
    the range of losses that all curves come to."""
    curves = Curves(context)
    names = letters()
    panels, parts = [], []
    first = next(iter(curves.quantizers))
    for metric in context.settings.metrics:
        if metric == LOSS:
            continue
        letter = next(names)
        panels.append(curves.over_tokens(letter, metric, first))
        parts.append(curves.points(letter, metric, first, lineage=True))
        parts.append(curves.learning_rates(letter, lineage=True))
    for quantizer in context.settings.losses_of:
        letter = next(names)
        points = curves.against_loss(letter, QUANTIZATION_ERROR, quantizer, lineage=True)
        panel = curves.panel(letter, QUANTIZATION_ERROR, quantizer, BEFORE)
        title = f"{panel.title} vs. loss"
        panels.append(replace(panel, title=title, zoom=common_range(points)))
        parts.append(points)
    return publish(context, panels, parts, curves.labels, lineage=True)


def common_range(points: pd.DataFrame) -> float:
    """The loss below which every curve has its lowest quarter of points."""
    return float(points.groupby("curve").x.quantile(0.25).max())
