"""Loss landscapes in the plane of a final checkpoint, an earlier one and its quantized weights."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm

from ptq_dynamics.curvature.settings import GRID, POINTS
from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.around import head, legend
from ptq_dynamics.figures.footer import calibration_sets, footer
from ptq_dynamics.figures.panels import save, subplots
from ptq_dynamics.figures.resolution import ONE_SET, TWO_ERRORS, amount
from ptq_dynamics.figures.settings import FigureSettings
from ptq_dynamics.figures.style import TEXT
from ptq_dynamics.figures.words import call
from ptq_dynamics.measure.names import LOSS

# How the three points are drawn and called.
MARKS = {
    "final": ("o", "final Θₖ"),
    "previous": ("s", "earlier Θₖ₋₁"),
    "quantized": ("X", "quantized Q(Θₖ)"),
}
LEVELS = 12


class Plane(NamedTuple):
    """A panel's name, the loss less that of the final checkpoint on its grid and at its points, and
    the distances between them."""

    name: str
    grid: pd.DataFrame
    points: pd.DataFrame
    distances: tuple[float, float]


def run(context: Context[FigureSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure, a panel for every curve (of one trajectory) and quantizer: contours
    of the loss less that of the final checkpoint, on the same levels in all, the three points, and
    their distances. The table has the grids and the points."""
    called = call(context.settings.quantizers)
    shown = list(product(context.settings.curves, called))
    planes = []
    for (curve, (name,)), quantizer in shown:
        manifest = context.input(f"landscape {name} {quantizer}")
        label = curve if len(called) == 1 else f"{curve}, {called[quantizer]}"
        points = pd.read_csv(manifest.file(POINTS))
        final = float(points.loc[points.point == "final", LOSS].iloc[0])
        grid = pd.read_csv(manifest.file(GRID)).assign(point="grid")
        distances = (manifest.facts["distance_previous"], manifest.facts["distance_quantized"])
        parts = [part.assign(increase=part.loss - final) for part in (grid, points)]
        planes.append(Plane(label, parts[0], parts[1], distances))
    columns = math.ceil(math.sqrt(len(shown)))
    rows = math.ceil(len(shown) / columns)
    height = rows * TEXT / max(2, columns) * 0.8 + 0.12
    figure, axes = subplots(rows, columns, height, layout="compressed")
    bounds = levels([plane.grid for plane in planes])
    for plane, ax in zip(planes, axes, strict=False):
        filled = _draw_panel(ax, plane, bounds)
    for ax in axes[len(shown) :]:
        ax.set_visible(False)
    bar = figure.colorbar(filled, ax=axes, ticks=bounds, format=_number, aspect=30, pad=0.01)
    bar.set_label("L − L(Θₖ) (nats/token)")
    legend(figure, axes[:1], {})
    resolved = resolution([plane.points for plane in planes])
    said = [f"{' and '.join(called.values())} quantization", footer(context)]
    said.append(f"the validation text resolves differences at Q(Θₖ) of {amount(resolved, 'nats')}")
    said += [ONE_SET] * (calibration_sets(context.settings) is not None)
    head(figure, "; ".join(said))
    whole = (pd.concat([each.grid, each.points]).assign(panel=each.name) for each in planes)
    table = pd.concat(whole)[["panel", "point", "x", "y", LOSS, "increase"]]
    save(figure, table, context)
    return {"points": len(table), "resolves": resolved}


def resolution(points: Sequence[pd.DataFrame]) -> float:
    """The smallest difference of increases at quantized points of two panels that is resolved: two
    standard errors, from the median of the panels'."""
    quantized = pd.concat(list(points)).query("point == 'quantized'")
    return float(TWO_ERRORS * quantized.stderr.median())


def levels(grids: Sequence[pd.DataFrame]) -> np.ndarray:
    """Levels for all panels: from the lowest increase to the largest, closer together near zero."""
    values = pd.concat(list(grids)).increase
    top = values.max() * (np.arange(LEVELS + 1) / LEVELS) ** 2
    below = values.min()
    return top if below >= 0 else np.concatenate([[below], top])


def _draw_panel(ax: Axes, plane: Plane, bounds: np.ndarray) -> Any:
    surface = plane.grid.pivot(index="y", columns="x", values="increase")
    norm = BoundaryNorm(bounds, 256)
    shape = (surface.columns, surface.index, surface, bounds)
    filled = ax.contourf(*shape, cmap="cividis_r", norm=norm)
    ax.contour(*shape, colors="0.25", linewidths=0.3)
    for name, (marker, text) in MARKS.items():
        point = plane.points[plane.points.point == name]
        style: dict[str, Any] = {"marker": marker, "markersize": 5, "linestyle": "none"}
        ax.plot(point.x, point.y, color="white", markeredgecolor="black", label=text, **style)
    training, quantization = plane.distances
    far = f"{training:.2g} from Θₖ₋₁, {quantization:.2g} from Q(Θₖ)"
    ax.set_title(f"{plane.name}\n{far}")
    ax.set(xlabel="Distance along Θₖ₋₁ − Θₖ", ylabel="Distance across")
    ax.locator_params(axis="x", nbins=5)
    ax.set_aspect("equal")
    ax.grid(False)
    return filled


def _number(value: float, _position: int) -> str:
    # With the sign that the axes have.
    return f"{value:.2g}".replace("-", "−")
