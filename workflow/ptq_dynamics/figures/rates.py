"""The strip with learning rates below the lowest panel of runs in each column."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.labels import RATE_LABEL, Panel, in_group
from ptq_dynamics.figures.places import STRIP
from ptq_dynamics.figures.style import SMALLEST, Styles
from ptq_dynamics.measure import names


def learning_rates(data: Curves) -> pd.DataFrame:
    """Return the learning rate of every run, one point for each checkpoint with a known rate. It is
    that of the next update, from the manifest of the training job."""
    rows = [
        {names.TRAJECTORY: run.name, names.SEED: run.seed, **asdict(checkpoint)}
        for run in data.settings.runs
        for checkpoint in data.checkpoints(run)
    ]
    table = pd.DataFrame(rows).drop_duplicates([names.TRAJECTORY, names.STEP])
    numbers = table[[names.STEP, names.TOKENS]].astype(float)
    table = table.assign(**numbers, value=table.lr.astype(float), metric="lr", stderr=np.nan)
    points = data.along(table, data.x).dropna(subset="y")
    curves = [in_group(label)[1] for label in points.curve]
    about = {"axis": "rate", "x_axis": data.x_label, "y_axis": RATE_LABEL}
    return points.assign(curve=curves, **about)


def strips(
    data: Curves, panels: Sequence[Panel], columns: int, table: pd.DataFrame
) -> tuple[dict[str, str | None], list[pd.DataFrame]]:
    """Return what lies below each panel of runs with known rates, by their names: another such
    panel, or None for a strip. Return the rows of the strips as well."""
    rates, rows = learning_rates(data), dict[int, pd.DataFrame]()
    for n, panel in enumerate(panels):
        own = rates[rates.segment.isin(table.segment[table.panel == panel.name])]
        if panel.strip and own.y.max() > 0:
            rows[n] = own.assign(panel=panel.name)
    lower = {n: panels[n + columns].name if n + columns in rows else None for n in rows}
    below = {panels[n].name: name for n, name in lower.items()}
    return below, [rows[n] for n, name in lower.items() if name is None]


def draw_strips(
    axes: Mapping[str, Axes], below: Mapping[str, str | None], table: pd.DataFrame, styles: Styles
) -> None:
    """Draw the strips of a figure's table, and let the panels above share their horizontal axes.
    The first strip has the labels of all that have the same highest rate."""
    first: float | None = None
    for name, lower in below.items():
        strip = axes[lower or STRIP.format(name)]
        if lower is None:
            part = table[(table.panel == name) & (table.axis == "rate")]
            for (curve, _), run in part.groupby(["curve", "segment"], sort=False):
                strip.plot(run.x, run.y, color=styles[str(curve)].color, linewidth=0.8)
            highest = float(part.y.max())
            strip.set(ylim=(0, 1.15 * highest), yticks=[0, highest], xlabel=axes[name].get_xlabel())
            strip.yaxis.set_major_formatter("{x:.2g}")
            strip.tick_params(axis="y", labelleft=highest != first)
            if first is None:
                first = highest
                strip.set_ylabel(RATE_LABEL.replace(" ", "\n"), fontsize=SMALLEST)
        strip.sharex(axes[name])
        axes[name].set_xlabel("")
        axes[name].tick_params(axis="x", labelbottom=False)
