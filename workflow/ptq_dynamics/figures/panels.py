"""Panels and how they are drawn. A figure's table is exactly what is drawn, and is its .csv.

Columns: panel, curve, segment (the trajectory), axis (left or right), x, y, low, high. One row a
point; low and high bound the error band where there is one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, PercentFormatter

from ptq_dynamics.figures.style import LINES, SETTINGS, Line
from ptq_dynamics.problem import Problem

COLUMNS = ["panel", "curve", "segment", "axis", "x", "y", "low", "high"]
WIDTH, HEIGHT = 3.55, 2.9  # inches of one panel


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
    log_y: bool = False
    thin: bool = False
    crop: bool = False

    @classmethod
    def over_tokens(cls, name: str, title: str, y: str, **form: bool) -> "Panel":
        """A panel against training tokens, with the learning rate on the right axis."""
        return cls(name, title, "Training tokens", y, "Learning rate", tokens_x=True, **form)


def draw(
    table: pd.DataFrame, panels: Sequence[Panel], curves: Sequence[str], footer: str
) -> Figure:
    """Panels in rows of up to three, with one legend below."""
    if len(curves) > len(LINES):
        raise Problem(
            f"a figure has {len(curves)} curves, {len(LINES)} can be told apart; take fewer in "
            "config/figures.yaml"
        )
    lines = dict(zip(curves, LINES, strict=False))
    sns.set_theme(style="ticks", rc=SETTINGS)
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    size = (WIDTH * columns, HEIGHT * rows)
    figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    axes = list(grid.flat)
    for panel, ax in zip(panels, axes, strict=True):
        _draw_panel(ax, panel, table[table.panel == panel.name], lines)
    handles, labels = _legend(axes)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5))
    figure.suptitle(footer, x=0.995, ha="right", fontsize=7, color="0.35")
    return figure


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
    if panel.tokens_x:
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        ax.locator_params(axis="x", nbins=6)
    if panel.crop:
        later = table[(table.axis == "left") & (table.x >= table.x.max() / 10)]
        low, high = later.low.min(), later.high.max()
        ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    if panel.percent_y:
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    if panel.log_y:
        ax.set_yscale("log")
        plain_log_ticks(ax.yaxis)
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


def _legend(axes: Sequence[Axes]) -> tuple[list, list[str]]:
    found: dict[str, object] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def save(figure: Figure, table: pd.DataFrame, out: Path, name: str) -> None:
    """Write NAME.pdf, NAME.png and NAME.csv; equal input gives equal bytes."""
    figure.savefig(out / f"{name}.pdf", metadata={"CreationDate": None})
    figure.savefig(out / f"{name}.png")
    table.to_csv(out / f"{name}.csv", index=False, lineterminator="\n")
    plt.close(figure)
