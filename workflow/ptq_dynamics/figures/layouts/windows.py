"""Averages at the end of a run by how far back they reach."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.panels import publish
from ptq_dynamics.figures.settings import WindowsSettings
from ptq_dynamics.figures.words import letters

AGE = "Mean age (tokens)"


def run(context: Context[WindowsSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure: averages against the mean age of what is in them, the ends of other
    trajectories as levels."""
    curves = Curves(context)
    ages = {(trajectory, name): age for trajectory, name, age in context.settings.ages}
    panels, parts = [], []
    for letter, (metric, quantizer) in zip(
        letters(), curves.wanted(quantized_losses=True), strict=False
    ):
        panel = curves.panel(letter, metric, quantizer, AGE)
        panels.append(replace(panel, tokens_x=True, log_x=True))
        parts.append(curves.against_age(letter, metric, quantizer, ages))
    return publish(context, panels, parts, curves.labels)
