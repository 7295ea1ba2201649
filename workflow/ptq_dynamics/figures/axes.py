"""The drawing of one panel: curves, ends of runs, error bars, limits and ticks."""

from collections.abc import Set
from typing import Unpack

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from ptq_dynamics.figures.labels import Panel
from ptq_dynamics.figures.style import END, Line, Look, Styles

FAINT = 0.4  # opacity of what is neither an end nor a level
# The height of a spike over the highest median of neighbours, and the number of neighbours.
SPIKE, NEIGHBOURS = 1.5, 9


def draw_panel(
    ax: Axes, panel: Panel, table: pd.DataFrame, styles: Styles, goes_on: Set[str]
) -> None:
    """Draw the points of one panel, but for learning rates."""
    for (curve, segment, axis), part in table.groupby(["curve", "segment", "axis"], sort=False):
        line, width = styles[str(curve)], panel.widths.get(str(curve))
        faint, look = panel.faint and axis == "left", Look()
        if width or panel.thin or faint:
            look = {"linewidth": width or 0.6}
        # Markers on narrower lines would hide the lines below.
        bare = panel.thin or axis == "level" or width != max(panel.widths.values(), default=None)
        if not bare:
            look |= {"marker": line.marker}
            look |= {"markersize": line.area**0.5} if line.area > END else {}
        look |= {"alpha": FAINT} if faint else {}
        ax.plot(part.x, part.y, color=line.color, linestyle=line.dash, label=curve, **look)
        if part.low.notna().any() and not faint:
            ax.fill_between(part.x, part.low, part.high, color=line.color, alpha=0.2, linewidth=0)
        if axis != "level" and segment not in goes_on:
            end = part[part.y.notna()].tail(1)
            mark_end(ax, end[["x", "y"]].to_numpy(), line)
            if faint:
                ax.vlines(end.x, end.low, end.high, color=line.color, linewidth=1.0)
    if panel.diagonal:
        ax.axline((0, 0), slope=1, color="0.5", linestyle="--", linewidth=0.6, zorder=1)
    ax.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    _limit(ax, panel, table)
    if panel.log_x:
        ax.set_xscale("log")
        plain_log_ticks(ax.xaxis)
    elif panel.tokens_x or panel.diagonal or panel.zoom is not None:
        ax.locator_params(axis="x", nbins=4)
    if panel.tokens_x:
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    if panel.log_y:
        ax.set_yscale("log")
        plain_log_ticks(ax.yaxis)


def mark_end(ax: Axes, end: np.ndarray, line: Line) -> None:
    """Outline the end of a run, [1, 2], or [0, 2] without an end."""
    x, y = end.T
    look: Look = {"color": line.color, "marker": line.marker, "zorder": 4}
    ax.scatter(x, y, s=line.area, edgecolors="black", linewidths=0.5, **look)


def error_bars(ax: Axes, part: pd.DataFrame, line: Line, curve: str, **look: Unpack[Look]) -> None:
    """Draw points of a curve with bars for their bands."""
    spread = [part.y - part.low, part.high - part.y]
    own: Look = {"color": line.color, "marker": line.marker, "label": curve, **look}
    ax.errorbar(part.x, part.y, yerr=spread, **own)


def _limit(ax: Axes, panel: Panel, table: pd.DataFrame) -> None:
    """Set limits without the points that would hide the rest."""
    shown = table
    if panel.crop:
        shown = table[table.x >= table.x.max() / 100]
    if panel.zoom is not None:
        shown = table[table.x <= panel.zoom]
        room = 0.05 * (panel.zoom - shown.x.min())
        ax.set_xlim(shown.x.min() - room, panel.zoom)
    if panel.spikes:
        along = table.groupby(["curve", "segment"], sort=False).y
        calm = along.transform(lambda y: y.rolling(NEIGHBOURS, 1, center=True).median())
        shown = shown[shown.y <= SPIKE * calm.max()]
    if len(shown) < len(table):
        ends = [shown.low.fillna(shown.y).min(), shown.high.fillna(shown.y).max()]
        # The line of equal values begins in the corner.
        ends[0] = min(ends[0], shown.x.min()) if panel.diagonal else ends[0]
        low, high = np.log(ends) if panel.log_y else ends
        ends = [low - 0.05 * (high - low), high + 0.05 * (high - low)]
        ax.set_ylim(*(np.exp(ends) if panel.log_y else ends))


def plain_log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis at 1, 2 and 5 times powers of ten, or a long x-axis at 1 and 3."""
    low, high = axis.get_data_interval()
    long = isinstance(axis, XAxis) and high > 10 * low
    axis.set_major_locator(LogLocator(subs=(1, 3) if long else (1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
