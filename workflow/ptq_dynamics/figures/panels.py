"""Panels and how they are drawn. A figure's table is exactly what is drawn, and is its .csv.

Columns: panel, curve, segment (the trajectory), axis (left or right), x, y, low, high. One row a
point; low and high bound the error band where there is one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, PercentFormatter

from ptq_dynamics.figures.footer import footer
from ptq_dynamics.figures.settings import PICTURES, TABLE, FigureSettings
from ptq_dynamics.figures.style import LINES, SETTINGS, Line
from ptq_dynamics.jobs.context import Context

COLUMNS = ["panel", "curve", "segment", "axis", "x", "y", "low", "high"]
WIDTH, HEIGHT = 3.55, 2.9  # inches of one panel
ENTRY, LETTER = 0.5, 0.062  # inches of an entry of the legend without its label, and of a letter
SMALL_LETTER = 0.058  # inches of a letter of the line at the top


@dataclass(frozen=True)
class Panel:
    """One panel: labels with units; `tokens_x` and `percent_y` format the ticks; `diagonal` draws
    x = y over the range of the data; `thin` draws many points or lines without markers; `crop`
    lets the first tenth of the horizontal axis run out of the panel."""

    name: str
    title: str
    x: str
    y: str
    right: str | None = None
    tokens_x: bool = False
    percent_y: bool = False
    diagonal: bool = False
    log_x: bool = False
    log_y: bool = False
    thin: bool = False
    crop: bool = False


def publish(
    context: Context[FigureSettings],
    panels: Sequence[Panel],
    parts: Sequence[pd.DataFrame],
    curves: Sequence[str],
    columns: int | None = None,
) -> dict[str, int]:
    """Draw the parts of a table in their panels, write the figure's files, and give the facts."""
    table = pd.concat(parts)
    save(draw(table, panels, curves, footer(context), columns), table, context.out, context.name)
    return {"points": len(table)}


def draw(
    table: pd.DataFrame,
    panels: Sequence[Panel],
    curves: Sequence[str],
    scale: str,
    columns: int | None = None,
) -> Figure:
    """Panels in rows of up to three, two by two where there are four, or of `columns`; one legend
    below."""
    lines = dict(zip(curves, LINES, strict=False))
    columns = columns or (2 if len(panels) == 4 else min(len(panels), 3))
    figure, axes = subplots(-(-len(panels) // columns), columns, WIDTH, HEIGHT)
    for panel, ax in zip(panels, axes, strict=False):
        _draw_panel(ax, panel, table[table.panel == panel.name], lines)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    legend(figure, axes)
    head(figure, scale)
    return figure


def subplots(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure in the style of all, and its axes, row by row, each of this size in inches."""
    sns.set_theme(style="ticks", rc=SETTINGS)
    size = (width * columns, height * rows)
    figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    return figure, list(grid.flat)


def _draw_panel(ax: Axes, panel: Panel, table: pd.DataFrame, lines: Mapping[str, Line]) -> None:
    right = ax.twinx() if panel.right else None
    for (curve, _segment, axis), part in table.groupby(["curve", "segment", "axis"], sort=False):
        line = lines[str(curve)]
        if axis == "right" and right is not None:
            right.plot(part.x, part.y, color=line.color, linestyle=":", linewidth=1.1, zorder=1)
            continue
        (drawn,) = ax.plot(part.x, part.y, color=line.color, linestyle=line.dash, label=curve)
        if panel.thin:
            drawn.set_linewidth(0.8)
        else:
            drawn.set_marker(line.marker)
        if part.low.notna().any():
            ax.fill_between(part.x, part.low, part.high, color=line.color, alpha=0.2, linewidth=0)
    if panel.diagonal:
        left = table[table.axis == "left"]
        ends = [left.x.min(), left.x.max()]
        ax.plot(ends, ends, color="black", linestyle=(0, (4, 3)), linewidth=0.9, label="x = y")
    ax.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    if panel.log_x:
        ax.set_xscale("log")
        plain_log_ticks(ax.xaxis)
    if panel.tokens_x:
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    if panel.tokens_x and not panel.log_x:
        ax.locator_params(axis="x", nbins=6)
    if panel.crop:
        later = table[(table.axis == "left") & (table.x >= table.x.max() / 10)]
        low, high = later.low.fillna(later.y).min(), later.high.fillna(later.y).max()
        ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    if panel.log_y:
        ax.set_yscale("log")
        plain_log_ticks(ax.yaxis)
    if panel.percent_y:
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    if right is not None:
        right.set_ylabel(str(panel.right))
        right.set_ylim(bottom=0)
        right.ticklabel_format(axis="y", style="sci", scilimits=(0, 0), useMathText=True)
        right.grid(False)
        ax.set_zorder(right.get_zorder() + 1)
        ax.patch.set_visible(False)


def plain_log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis at 1, 2 and 5 times the powers of ten, and nowhere else."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def head(figure: Figure, text: str) -> None:
    """Small words at the top right, in as many lines as they take."""
    width = int(figure.get_figwidth() / SMALL_LETTER)
    lines = wrap(text, width, break_on_hyphens=False)
    figure.suptitle("\n".join(lines), x=0.995, ha="right", fontsize=7, color="0.35")


def legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend below the panels: every label once, as many in a row as there is room for."""
    found: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    room = figure.get_figwidth() / (ENTRY + LETTER * max(map(len, found)))
    columns = max(1, min(5, len(found), int(room)))
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns)


def save(figure: Figure, table: pd.DataFrame, out: Path, name: str) -> None:
    """Write the figure's pictures and its table, NAME.csv; equal input gives equal bytes."""
    # Laid out once: with a layout engine, matplotlib lays a figure out, and draws it, twice a file.
    figure.draw_without_rendering()
    figure.set_layout_engine(None)
    for kind in PICTURES:
        metadata = {"CreationDate": None} if kind == "pdf" else {}
        figure.savefig(out / f"{name}.{kind}", metadata=metadata)
    table.to_csv(out / f"{name}.{TABLE}", index=False, lineterminator="\n")
    plt.close(figure)
