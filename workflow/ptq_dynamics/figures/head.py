"""What stands above a figure, the scale that it was made at, and what stands below its caption: how
its numbers came about, and the smallest differences that it resolves."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.figures.settings import Panel, rounded
from ptq_dynamics.measure.names import SEED
from ptq_dynamics.train.trajectory import Trajectory

BACKENDS = {"gptq": "llm-compressor", "gptqmodel": "GPTQModel", "autogptq": "AutoGPTQ"}
# Two standard errors of a difference of two points, by that of one.
TWO_ERRORS = 2 * math.sqrt(2)


def made_at(settings: FigureSettings, inputs: Mapping[str, Sequence[Manifest]]) -> str:
    """The scale that a figure was made at, in one line: name, parameters, tokens and seeds."""
    runs = {run: Trajectory(inputs[run.label]) for run in settings.runs}
    sizes = sorted({run.fact("parameters") for run in runs.values()})
    size = " to ".join(dict.fromkeys(map(rounded, (sizes[0], sizes[-1]))))
    small = {run.stands_for for run in runs} - {None}
    kind = f" (miniature{'s' * (len(small) > 1)})" if small else ""
    tokens = max(run.checkpoints[-1].tokens or 0 for run in runs.values())
    seeds = _counted(len({run.seed for run in runs}), "seed")
    return f"{settings.scale}: {size} parameters{kind}, {rounded(tokens)} tokens, {seeds}"


def notes(
    settings: FigureSettings,
    inputs: Mapping[str, Sequence[Manifest]],
    resolved: Mapping[str, float],
) -> list[str]:
    """Sentences on the sizes of miniatures, the tool for GPTQ, calibration sets, what the plan has
    to say, and the smallest differences that are resolved, by the label of their axis."""
    sizes = {
        run.stands_for: rounded(Trajectory(inputs[run.label]).fact("parameters"))
        for run in settings.runs
        if run.stands_for
    }
    several = ", ".join(f"{name} {size}" for name, size in sizes.items())
    said = [f"Parameters of miniatures: {several}."] if len(sizes) > 1 else []
    # The settings' name where the scale takes others than those the figure names.
    tools = dict.fromkeys(
        BACKENDS[shown.method] + (f" ({shown.draws[0]})" if shown.draws[0] != shown.name else "")
        for shown in settings.quantizers
        if shown.method in BACKENDS
    )
    sets = max((len(shown.draws) for shown in settings.quantizers if shown.calibrated), default=0)
    made = [f"GPTQ by {' and '.join(tools)}"] if tools else []
    made += [_counted(sets, "calibration set")] if sets else []
    said += [f"{', '.join(made)}."] if made else []
    said += settings.notes
    if resolved:
        axes = ", ".join(_amount(label, value) for label, value in resolved.items())
        # How far another calibration set would have moved a value is not known from one.
        alone = ", without what another calibration set would change" if sets == 1 else ""
        said.append(f"Smallest resolved differences by axis: {axes}{alone}.")
    return said


def _counted(count: int, what: str) -> str:
    # In words that do not part at the end of a line.
    return f"{count}\N{NO-BREAK SPACE}{what}{'' if count == 1 else 's'}"


def _amount(label: str, value: float) -> str:
    # A number to two digits, with the words and the unit of its axis.
    name, _, unit = label.removesuffix(")").partition(" (")
    return f"{name} {float(f'{value:.2g}'):g}\N{NO-BREAK SPACE}{unit}".rstrip()


def resolve(
    settings: FigureSettings, table: pd.DataFrame, panels: Sequence[Panel]
) -> dict[str, float]:
    """The smallest difference that all panels of an axis resolve, by its label; points are means
    over all seeds, but where the table has a column of seeds."""
    seeds = 1 if SEED in table else len({run.seed for run in settings.runs})
    found = dict[str, float]()
    for panel in panels:
        part, relative = table[table.panel == panel.name], panel.log_y
        value = resolution(part, seeds, relative=relative)
        if panel.thin and value is None:
            value = scatter(part, relative=relative)
        if value:
            label = f"{panel.y.partition(' (')[0]} (% of the value)" if relative else panel.y
            found[label] = max(found.get(label, 0.0), 100 * value if relative else value)
    return found


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
