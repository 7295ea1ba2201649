"""What stands above a figure: the scale that it was made at, and the smallest differences that its
panels resolve."""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.figures.settings import ALIKE, Panel, rounded
from ptq_dynamics.measure.names import SEED, TASK_METRICS
from ptq_dynamics.train.trajectory import Trajectory

BACKENDS = {"gptq": "llm-compressor", "gptqmodel": "GPTQModel", "autogptq": "AutoGPTQ"}
# Two standard errors of a difference of two points, by that of one.
TWO_ERRORS = 2 * math.sqrt(2)
# How far another calibration set would have moved a value is not known from one.
ONE_SET = "other calibration sets are not in it"


def made_at(settings: FigureSettings, inputs: Mapping[str, Sequence[Manifest]]) -> str:
    """The scale that a figure was made at: its name, parameters, tokens, seeds, calibration sets
    and tool for GPTQ; and what its labels need said."""
    runs = {run: Trajectory(inputs[run.label]) for run in settings.runs}
    # The sizes of the models, and of miniatures what they stand for.
    sizes: dict[str | None, dict[str, None]] = {}
    for shown, run in runs.items():
        sizes.setdefault(shown.stands_for, {})[rounded(run.fact("parameters"))] = None
    own = " and ".join(sorted(sizes.pop(None, {})))
    found = [f"{own} parameters"] if own else []
    if sizes:
        small = ", ".join(f"{name} ({' and '.join(each)})" for name, each in sizes.items())
        plural = "s" if len(sizes) > 1 else ""
        found.append(f"miniature{plural} of {small.removesuffix(')')} parameters)")
    tokens = max(run.checkpoints[-1].tokens or 0 for run in runs.values())
    seeds, sets = len({run.seed for run in runs}), calibration_sets(settings)
    found += [f"{rounded(tokens)} tokens", _counted(seeds, "seed")]
    found += [_counted(sets, "calibration set")] if sets else []
    # The settings' name where the scale takes others than those the figure names.
    tools = dict.fromkeys(
        BACKENDS[shown.method] + (f" ({shown.draws[0]})" if shown.draws[0] != shown.name else "")
        for shown in settings.quantizers
        if shown.method in BACKENDS
    )
    words = [f"{settings.scale}: {', '.join(found)}"]
    words += [f"GPTQ by {' and '.join(tools)}"] if tools else []
    words += [f"left out: {', '.join(settings.left_out)}"] if settings.left_out else []
    words += [f"uncertain of {', '.join(settings.uncertain)}"] if settings.uncertain else []
    marked = any(ALIKE in curve for curve, _ in settings.curves)
    return "; ".join([*words, *[f"{ALIKE} marks the paper's value"] * marked])


def _counted(count: int, what: str) -> str:
    # In words that do not part at the end of a line.
    return f"{count}\N{NO-BREAK SPACE}{what}{'' if count == 1 else 's'}"


def calibration_sets(settings: FigureSettings) -> int:
    """The most calibration sets over which an error of the figure is a mean; 0 where its quantizers
    look at none."""
    return max((len(shown.draws) for shown in settings.quantizers if shown.calibrated), default=0)


def resolve(
    settings: FigureSettings, table: pd.DataFrame, panels: Sequence[Panel]
) -> tuple[dict[str, float | None], list[str]]:
    """The smallest difference that each panel of a table resolves, and the words for it; points are
    means over all seeds, but where the table has a column of seeds."""
    seeds = 1 if SEED in table else len({run.seed for run in settings.runs})
    resolved, banded, bare = dict[str, float | None](), list[str](), list[str]()
    for panel in panels:
        part, words = table[table.panel == panel.name], banded
        value = resolution(part, seeds, relative=panel.log_y)
        if panel.thin and value is None:
            value, words = scatter(part, relative=panel.log_y), bare
        resolved[panel.name] = value
        if value:
            unit = re.search(r"\(([^/)]+)(/\w+)?\)$", panel.y)
            name = "% of the value" if panel.log_y else unit[1] if unit else ""
            text = amount(100 * value if panel.percent_y or panel.log_y else value, name)
            words.append(f"({panel.name})\N{NO-BREAK SPACE}{text}")
    said = []
    if banded:
        # The text, the questions, are as exact as there is of them; calibration sets are not.
        one = seeds == 1 and calibration_sets(settings) == 1
        asked = {metric in TASK_METRICS for metric in settings.figure.metrics}
        exact = ["the validation text"] * (False in asked) + ["the questions"] * (True in asked)
        verb = "resolve" if True in asked and one else "resolves"
        words = [" and ".join(exact)] * one + [f"{verb} differences of {', '.join(banded)}"]
        said += [" ".join(words), *[ONE_SET] * one]
    if bare:
        said.append(f"the scatter along a run resolves differences of {', '.join(bare)}")
    return resolved, said


def resolution(table: pd.DataFrame, seeds: int, *, relative: bool = False) -> float | None:
    """The smallest difference of two points that a panel's bands resolve on every curve: two
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


def amount(value: float, unit: str = "") -> str:
    """A number to two digits, with its unit."""
    text = f"{float(f'{value:.2g}'):g}"
    return f"{text}\N{NO-BREAK SPACE}{unit}" if unit else text
