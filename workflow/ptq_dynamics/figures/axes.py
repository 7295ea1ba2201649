"""The drawing of one panel: curves, ends of runs, error bars, limits and ticks."""

from collections.abc import Mapping, Set
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

from ptq_dynamics.figures.labels import UNDER, Panel
from ptq_dynamics.figures.style import END, GUIDE, NAMES, ORDERED, Line, Styles

WIDEST = 24  # letters of a line of a vertical axis's label
# Panels that are cropped ignore points before this share of the horizontal axis.
EARLY = 0.2
SHORT = 5  # ratio of the ends of a logarithmic axis that has ticks at equal distances
LOG_SCALE = ", log scale"
STEPS = [1, 2, 5, 10]  # between such ticks
MANY = 5  # curves in a panel, above which bands are fainter
MANY_POINTS, SMALL = 8, 2.2  # points of a run, above which markers with bars are small, in points


def draw_panel(
    ax: Axes, panel: Panel, table: pd.DataFrame, styles: Styles, goes_on: Set[str] = frozenset()
) -> None:
    """Draw the points of one panel: lines with bands or error bars, and outlined ends of runs."""
    if panel.form == "rows":
        return draw_rows(ax, panel, table, styles)
    shade = 0.2 if table.curve.nunique() <= MANY else 0.08
    for (name, segment, axis), part in table.groupby(["curve", "segment", "axis"], sort=False):
        curve, line = str(name), styles[str(name)]
        look: dict[str, object] = {"linestyle": line.dash, "marker": line.marker}
        if panel.form in ("bars", "points"):
            is_scatter = panel.form == "points"
            look |= {"linestyle": "none"} if is_scatter else {}
            look |= {"markersize": SMALL} if is_scatter or len(part) > MANY_POINTS else {}
            if is_scatter and not ORDERED.fullmatch(curve):  # apart also without colour
                look |= {"markerfacecolor": "white", "markeredgewidth": 0.5}
            error_bars(ax, part, line, curve, **look)
            continue
        is_thin = panel.form == "thin" or UNDER.fullmatch(curve)
        look |= {"linewidth": 0.6} if is_thin else {}
        # Runs have many checkpoints, and markers on narrower lines would hide the lines below.
        if line.area > END:
            look |= {"markersize": line.area**0.5, "linestyle": "none"}
        elif is_thin or panel.strip:
            look |= {"markevery": slice(0)}  # only the legend has the marker
        look |= {"marker": ""} if axis == "level" else {}
        (drawn,) = ax.plot(part.x, part.y, color=line.color, label=curve)
        drawn.set(**look)
        if part.low.notna().any():
            ax.fill_between(part.x, part.low, part.high, color=line.color, alpha=shade, linewidth=0)
        if axis != "level" and segment not in goes_on:
            end, color, marker = part[part.y.notna()].tail(1), line.color, line.marker
            ends = ax.scatter(end.x, end.y, s=line.area, color=color, marker=marker, zorder=4)
            ends.set(edgecolor="black", linewidth=0.5)
    write_labels(ax, panel)
    _limit(ax, panel, table)
    if panel.diagonal:
        low, high = table[["x", "y"]].min().min(), table[["x", "y"]].max().max()
        ax.axline((low, low), (high, high)).set(**GUIDE)
    for axis, is_log in ((ax.xaxis, panel.log_x), (ax.yaxis, panel.log_y)):
        if is_log:
            plain_log_ticks(ax, axis)
    if not panel.log_x and (panel.tokens_x or panel.diagonal or panel.zoom is not None):
        ax.locator_params(axis="x", nbins=3)
    if panel.tokens_x:
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    if not panel.diagonal and panel.y.endswith("(%)") and table.y.min() < 0 and not panel.log_y:
        ax.axhline(0).set(**GUIDE)


def write_labels(ax: Axes, panel: Panel) -> None:
    """Write the title of a panel and the labels of its axes, which name a logarithmic scale."""
    x, y = panel.x + LOG_SCALE * panel.log_x, panel.y + LOG_SCALE * panel.log_y
    title = "\n".join(fill(line, panel.letters) for line in panel.title.split("\n"))
    ax.set(title=title, xlabel=fill(x, panel.letters), ylabel=fill(y, WIDEST))


def draw_rows(ax: Axes, panel: Panel, table: pd.DataFrame, styles: Styles) -> None:
    """Draw values with error bars in rows, one for each segment; a line joins those of a row."""
    rows = table.drop_duplicates("segment")
    is_joined = table.segment.duplicated().any()
    for _, row in table.groupby("y") if is_joined else ():
        ax.plot(row.x, row.y, color="0.75", linewidth=2, zorder=1)
    for curve, part in table.groupby("curve", sort=False):
        line = styles[str(curve)] if is_joined else Line("0.2", "-", "o")
        bars = ax.errorbar(part.x, part.y, xerr=_spread(part, "x"), color=line.color)
        bars.set_label(str(curve) if is_joined else "_")
        bars[0].set(linestyle="none", marker=line.marker, markersize=4.5)
    write_labels(ax, panel)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_yticks(rows.y, rows.segment)
    ax.tick_params(axis="y", length=0, labelleft=is_leftmost(ax))
    ax.grid(visible=False, axis="y")
    ax.set_xlim(left=panel.start)
    if panel.log_x:
        plain_log_ticks(ax, ax.xaxis)
    else:
        ax.locator_params(axis="x", nbins=3)


def is_leftmost(ax: Axes) -> bool:
    """Return whether a panel is the first of its row."""
    place = ax.get_subplotspec()
    return place is None or place.is_first_col()


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
        red, green, blue = (0.7 * part for part in to_rgb(styles[name].color))
        dark = (red, green, blue)  # readable on white
        text.set(color=dark, fontsize=NAMES, verticalalignment="center")


def error_bars(ax: Axes, part: pd.DataFrame, line: Line, curve: str, **look: object) -> None:
    """Draw points of a curve with bars for their bands."""
    bars = ax.errorbar(part.x, part.y, yerr=_spread(part, "y"), color=line.color, elinewidth=0.6)
    bars.set_label(curve)
    bars[0].set(marker=line.marker, markersize=line.area**0.5, linewidth=0.5, linestyle="none")
    bars[0].set(**look)


def _spread(part: pd.DataFrame, name: str) -> list[pd.Series]:
    return [part[name] - part.low, part.high - part[name]]


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


def plain_log_ticks(ax: Axes, axis: Axis) -> None:
    """Make an axis logarithmic, with labels at 1, 2 and 5 times powers of ten. A long one has fewer
    labels, and a short one has them at equal distances."""
    is_x = axis is ax.xaxis
    (ax.set_xscale if is_x else ax.set_yscale)("log")
    low, high = axis.get_data_interval()
    decades = np.log10(high / low) * (2 if is_x else 1)
    subs = (1,) if decades > 3 else (1, 3) if decades > 2 else (1, 2, 5)
    axis.set_major_locator(
        MaxNLocator(4, steps=STEPS) if high < SHORT * low else LogLocator(subs=subs)
    )
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
