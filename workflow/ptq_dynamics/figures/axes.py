"""The drawing of one panel: curves, ends of runs, error bars, limits and ticks."""

from collections.abc import Mapping, Set
from textwrap import fill
from typing import Unpack

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

from ptq_dynamics.figures.labels import Panel
from ptq_dynamics.figures.style import END, NAMES, Line, Look, Styles

WIDEST = 24  # letters of a line of a vertical axis's label
# Panels that are cropped ignore points before this share of the horizontal axis.
EARLY = 0.2
SHORT = 5  # ratio of the ends of a logarithmic axis that has ticks at equal distances
STEPS = [1, 2, 5, 10]  # between such ticks
MANY = 5  # curves in a panel, above which bands are fainter


def draw_panel(
    ax: Axes, panel: Panel, table: pd.DataFrame, styles: Styles, goes_on: Set[str]
) -> None:
    """Draw the points of one panel: lines with bands, and outlined ends of runs."""
    shade = 0.2 if table.curve.nunique() <= MANY else 0.08
    for (curve, segment, axis), part in table.groupby(["curve", "segment", "axis"], sort=False):
        line, width = styles[str(curve)], panel.widths.get(str(curve))
        look: Look = {"linewidth": width} if width else {"linewidth": 0.6} if panel.thin else {}
        # Runs have many checkpoints, and markers on narrower lines would hide the lines below.
        if line.area > END:
            look |= {"markersize": line.area**0.5, "linestyle": "none"}
        elif panel.thin or panel.strip:
            look |= {"markevery": slice(0)}  # only the legend has the marker
        look |= {"marker": "" if axis == "level" else line.marker}
        look = {"color": line.color, "linestyle": line.dash, "label": str(curve), **look}
        ax.plot(part.x, part.y, **look)
        if part.low.notna().any():
            ax.fill_between(part.x, part.low, part.high, color=line.color, alpha=shade, linewidth=0)
        if axis != "level" and segment not in goes_on:
            mark_end(ax, part[part.y.notna()].tail(1)[["x", "y"]].to_numpy(), line)
    if panel.diagonal:
        ax.axline((0, 0), slope=1, color="0.5", linestyle="--", linewidth=0.6, zorder=1)
    elif panel.y.endswith("(%)") and table.y.min() < 0 and not panel.log_y:
        zero_level(ax, table)
    ax.set(title=panel.title, xlabel=panel.x, ylabel=fill(panel.y, WIDEST))
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


def zero_level(ax: Axes, table: pd.DataFrame) -> None:
    """Draw the level of zero, below which there is noise or the better of two runs."""
    ends = table.x.min(), table.x.max()
    ax.hlines(0, *ends, color="0.5", linestyle="--", linewidth=0.6, zorder=1)


def name_ends(ax: Axes, ends: Mapping[str, float], styles: Styles, height: float) -> None:
    """Write names of curves at the right of a panel, `height` inches high, beside the heights of
    their ends, and apart from each other."""
    to_share = ax.transScale + ax.transLimits
    ax.get_ylim()  # the transformation needs limits
    places = {name: min(1, max(0, to_share.transform((1, y))[1])) for name, y in ends.items()}
    step, last = 1.25 * NAMES / (72 * height), -np.inf
    for name in sorted(places, key=places.__getitem__):
        last = max(places[name], last + step)
        places[name] = last
    # Names that would begin above the panel push the others down.
    above = max(0, last - 1)
    for name, place in places.items():
        text = ax.annotate(
            name, (1, place - above), (4, 0), xycoords="axes fraction", textcoords="offset points"
        )
        text.set(color=styles[name].color, fontsize=NAMES, verticalalignment="center")


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
        last = table.groupby(["curve", "segment"], sort=False).tail(1).index
        shown = table[(table.x >= EARLY * table.x.max()) | table.index.isin(last)]
    if panel.zoom is not None:
        shown = table[table.x <= panel.zoom]
        room = 0.05 * (panel.zoom - shown.x.min())
        ax.set_xlim(shown.x.min() - room, panel.zoom)
    if len(shown) < len(table):
        ends = [shown.low.fillna(shown.y).min(), shown.high.fillna(shown.y).max()]
        # The line of equal values begins in the corner.
        ends[0] = min(ends[0], shown.x.min()) if panel.diagonal else ends[0]
        low, high = np.log(ends) if panel.log_y else ends
        ends = [low - 0.05 * (high - low), high + 0.05 * (high - low)]
        ax.set_ylim(*(np.exp(ends) if panel.log_y else ends))


def plain_log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis at 1, 2 and 5 times powers of ten, a long one at fewer places, and a
    short one at equal distances."""
    low, high = axis.get_data_interval()
    long = high > (10 if isinstance(axis, XAxis) else 100) * low
    subs = (1, 3) if long else (1, 2, 5)
    axis.set_major_locator(
        MaxNLocator(4, steps=STEPS) if high < SHORT * low else LogLocator(subs=subs)
    )
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
