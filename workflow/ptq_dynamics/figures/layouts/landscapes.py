"""Loss landscapes in the plane of a final checkpoint, an earlier one and its quantized weights."""

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ptq_dynamics.figures.footer import footer
from ptq_dynamics.figures.panels import WIDTH, head, legend, save, subplots
from ptq_dynamics.figures.settings import FigureSettings
from ptq_dynamics.figures.words import call
from ptq_dynamics.geometry.settings import GRID, POINTS
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.jobs.manifest import Manifest

# How the three points are drawn and called.
MARKS = {
    "final": ("o", "final Θ$_K$"),
    "previous": ("s", "earlier Θ$_{K-1}$"),
    "quantized": ("X", "quantized Θ̂$_K$"),
}
LEVELS = 14


def run(context: Context[FigureSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure, a panel for every curve (of one trajectory) and quantizer: contours
    of the loss, the three points, and their distances. The table has the grid and the points."""
    called = call(context.settings.quantizers)
    shown = list(product(context.settings.curves, called))
    columns = math.ceil(math.sqrt(len(shown)))
    rows = math.ceil(len(shown) / columns)
    figure, axes = subplots(rows, columns, WIDTH, WIDTH * 0.95)
    parts = []
    for ((curve, (name,)), quantizer), ax in zip(shown, axes, strict=False):
        manifest = context.input(f"landscape {name} {quantizer}")
        label = curve if len(called) == 1 else f"{curve}, {called[quantizer]}"
        grid = pd.read_csv(manifest.file(GRID)).assign(point="grid")
        points = pd.read_csv(manifest.file(POINTS))
        _draw_panel(ax, grid, points, manifest, label)
        parts.append(pd.concat([grid, points]).assign(panel=label))
    for ax in axes[len(shown) :]:
        ax.set_visible(False)
    legend(figure, axes[:1])
    head(figure, f"{' and '.join(called.values())} quantization; {footer(context)}")
    table = pd.concat(parts)[["panel", "point", "x", "y", "loss"]]
    save(figure, table, context.out, context.name)
    return {"points": len(table)}


def _draw_panel(
    ax: Axes, grid: pd.DataFrame, points: pd.DataFrame, manifest: Manifest, label: str
) -> None:
    surface = grid.pivot(index="y", columns="x", values="loss")
    filled = ax.contourf(surface.columns, surface.index, surface, LEVELS, cmap="cividis_r")
    ax.contour(surface.columns, surface.index, surface, LEVELS, colors="0.25", linewidths=0.4)
    for name, (marker, text) in MARKS.items():
        point = points[points.point == name]
        ax.plot(
            point.x,
            point.y,
            marker=marker,
            color="white",
            markeredgecolor="black",
            markersize=7,
            linestyle="none",
            label=text,
        )
    distances = [manifest.facts[f"distance_{name}"] for name in ("previous", "quantized")]
    ax.set_title(
        f"{label}   ‖Θ$_K$−Θ$_{{K-1}}$‖ = {distances[0]:.2g}   ‖Θ$_K$−Θ̂$_K$‖ = {distances[1]:.2g}",
        fontsize=8,
    )
    ax.set(xlabel="Distance along Θ$_{K-1}$ − Θ$_K$", ylabel="Distance across")
    ax.grid(False)
    digits = max(2, 1 - math.floor(math.log10(grid.loss.max() - grid.loss.min())))
    bar = ax.figure.colorbar(filled, ax=ax, format=f"%.{digits}f")
    bar.set_label("Validation loss (nats/token)", fontsize=7)
    bar.ax.tick_params(labelsize=7)
