"""Loss landscapes in the plane of a final checkpoint, an earlier one and its quantized weights."""

import math
from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from ptq_dynamics.figures.curves import footer
from ptq_dynamics.figures.panels import WIDTH, save
from ptq_dynamics.figures.style import SETTINGS
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.jobs.manifest import Manifest

# How the three points are drawn and called.
POINTS = {
    "final": ("o", "final Θ$_K$"),
    "previous": ("s", "earlier Θ$_{K-1}$"),
    "quantized": ("X", "quantized Θ̂$_K$"),
}
LEVELS = 14


def draw_landscapes(context: Context) -> Mapping[str, Any]:
    """A panel for every curve (of one trajectory): contours of the loss above that of the final
    checkpoint, the three points, and their distances. The table has the grid and the points."""
    curves = dict(context.settings["curves"])
    ((quantizer, settings),) = context.settings["quantizers"]
    sns.set_theme(style="ticks", rc=SETTINGS)
    figure, axes = plt.subplots(
        2, 2, figsize=(2 * WIDTH, 2 * WIDTH * 0.95), layout="constrained", squeeze=False
    )
    parts = []
    manifests = context.inputs[f"landscapes {quantizer}"]
    for (label, _), manifest, ax in zip(curves.items(), manifests, axes.flat, strict=True):
        grid = pd.read_csv(manifest.file("grid.csv")).assign(point="grid")
        points = pd.read_csv(manifest.file("points.csv"))
        _draw_panel(ax, grid, points, manifest, label)
        parts.append(pd.concat([grid, points]).assign(panel=label))
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    title = f"{settings['bits']}-bit quantization      {footer(context)}"
    figure.suptitle(title, x=0.995, ha="right", fontsize=7, color="0.35")
    table = pd.concat(parts)[["panel", "point", "x", "y", "loss"]]
    save(figure, table, context.out, context.name)
    return {"points": len(table)}


def _draw_panel(
    ax: Axes, grid: pd.DataFrame, points: pd.DataFrame, manifest: Manifest, label: str
) -> None:
    surface = grid.pivot(index="y", columns="x", values="loss")
    filled = ax.contourf(surface.columns, surface.index, surface, LEVELS, cmap="cividis_r")
    ax.contour(surface.columns, surface.index, surface, LEVELS, colors="0.25", linewidths=0.4)
    for name, (marker, text) in POINTS.items():
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
