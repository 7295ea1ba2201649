"""The smallest differences that the panels of a figure resolve."""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ptq_dynamics.figures.around import calibration_sets
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.figures.words import Panel
from ptq_dynamics.measure.names import TASK_METRICS

# Two standard errors of a difference of two points, by that of one.
TWO_ERRORS = 2 * math.sqrt(2)
# How far another calibration set would have moved a value is not known from one.
ONE_SET = "other calibration sets are not in it"


def resolve(
    settings: FigureSettings, table: pd.DataFrame, panels: Sequence[Panel], *, means: bool = True
) -> tuple[dict[str, float | None], list[str]]:
    """The smallest difference that each panel of a table resolves, and the words for it; its points
    are `means` over all seeds, or of one seed each."""
    seeds = len({run.seed for run in settings.runs}) if means else 1
    parts = {panel.name: table[table.panel == panel.name] for panel in panels}
    banded = {p.name: resolution(parts[p.name], seeds, relative=p.log_y) for p in panels}
    bare = {
        p.name: scatter(parts[p.name], relative=p.log_y)
        for p in panels
        if p.thin and banded[p.name] is None
    }
    said = []
    if words := _differences(panels, banded):
        one = seeds == 1 and calibration_sets(settings) == 1
        said.append(f"{_resolving(settings) if one else 'resolves'} {words}")
        said += [ONE_SET] * one
    if words := _differences(panels, bare):
        said.append(f"the scatter along a run resolves {words}")
    return banded | bare, said


def resolution(table: pd.DataFrame, seeds: int, *, relative: bool = False) -> float | None:
    """The smallest difference of two points of a panel that its bands resolve on every curve: two
    standard errors of it, from the largest of the curves' median bands, of means over seeds; as a
    share of the values if it is `relative`. None without bands."""
    halves = (table.high - table.low) / 2
    halves = halves / table.y.abs() if relative else halves
    half = halves.groupby(table.curve).median().max()
    return None if math.isnan(half) else float(TWO_ERRORS * half / math.sqrt(seeds))


def scatter(table: pd.DataFrame, *, relative: bool = False) -> float | None:
    """The same without bands, from how far neighbours on a line scatter about its course: by their
    second differences, whose variance is 6 times that of a point, and of these the median, which a
    few spikes do not change. None of fewer than three points."""
    values = table[table.axis == "left"]
    values = values.assign(y=np.log(values.y)) if relative else values
    bends = values.groupby(["curve", "segment"], sort=False).y.transform(lambda y: y.diff().diff())
    # The median of a normal distribution's magnitudes is 0.6745 of its deviation.
    spread = bends.abs().groupby(values.curve).median().max() / 0.6745 / math.sqrt(6)
    return None if math.isnan(spread) else float(TWO_ERRORS * spread)


def amount(value: float, unit: str = "", *, percent: bool = False) -> str:
    """A number to two digits, with its unit."""
    text = f"{float(f'{100 * value if percent else value:.2g}'):g}"
    return f"{text}\N{NO-BREAK SPACE}{unit}" if unit else text


def _resolving(settings: FigureSettings) -> str:
    """What is as exact as there is of it."""
    asked = {metric in TASK_METRICS for metric in settings.figure.metrics}
    if asked == {True}:
        return "the questions resolve"
    return f"the validation text {'and the questions resolve' if True in asked else 'resolves'}"


def _differences(panels: Sequence[Panel], resolved: Mapping[str, float | None]) -> str:
    found = []
    for panel in panels:
        if value := resolved.get(panel.name):
            unit = re.search(r"\(([^/)]+)(/\w+)?\)$", panel.y)
            name = "% of the value" if panel.log_y else unit[1] if unit else ""
            text = amount(value, name, percent=panel.percent_y or panel.log_y)
            found.append(f"({panel.name})\N{NO-BREAK SPACE}{text}")
    return f"differences of {', '.join(found)}" if found else ""
