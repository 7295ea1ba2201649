"""Loss landscapes in the plane of a final checkpoint, an earlier one and its quantized weights."""

import math
from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from ptq_dynamics.base import needs
from ptq_dynamics.base.fields import Share, Strict
from ptq_dynamics.curvature.geometry import GRID, POINTS
from ptq_dynamics.figures.layout import Layout, Reads, Some, Text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.contour import QuadContourSet

    from ptq_dynamics.figures.panels import Picture, Sheet
    from ptq_dynamics.figures.style import Look

MARKS = {  # markers and labels of the three points
    "final": ("o", "final Θₖ"),
    "previous": ("s", "earlier Θₖ₋₁"),
    "quantized": ("X", "quantized Q(Θₖ)"),
}
ALONG, ACROSS = "Distance along Θₖ₋₁ − Θₖ", "Distance across"
FAR = "{distance_previous:.2g} from Θₖ₋₁, {distance_quantized:.2g} from Q(Θₖ)"
LEVELS = 12
One = Annotated[tuple[str, ...], Field(min_length=1, max_length=1)]


class PlaneOptions(Strict):
    """A plane through a trajectory's last checkpoint, its quantized weights and an earlier one."""

    previous: Share  # how long before


class Landscapes(Layout):
    """A panel for every curve, of one trajectory, and quantizer: contours of the loss minus that of
    the final checkpoint, on common levels, with the three points and their distances."""

    of_one_seed = True
    most_curves = math.inf  # each has a panel of its own
    layout: Literal["landscapes"]
    curves: Annotated[dict[Text, One], Field(min_length=1)]
    quantizers: Some[str]
    metrics: tuple[()] = ()
    landscape: PlaneOptions

    @property
    def reads(self) -> Reads:
        """Losses in all planes."""
        return Reads(plane=self.landscape.previous)

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure. The table has the grids and the points."""
        import pandas as pd

        from ptq_dynamics.figures.panels import columned, subplots
        from ptq_dynamics.figures.style import TEXT

        called, planes = sheet.data.called, dict[str, tuple[str, pd.DataFrame]]()
        for (curve, (name,)), quantizer in product(sheet.settings.curves, called):
            (manifest,) = sheet.data.inputs[needs.landscape(name, quantizer)]
            points = pd.read_csv(manifest.file(POINTS))
            table = pd.concat([pd.read_csv(manifest.file(GRID)).assign(point="grid"), points])
            final = points.loss[points.point == "final"].iloc[0]
            label = curve if len(called) == 1 else f"{curve}, {called[quantizer]}"
            about = {"curve": curve, "trajectory": name, "quantizer": quantizer, "panel": label}
            about |= {"metric": "landscape", "unit": "nats/token"}
            bits = sheet.data.quantizers[quantizer].bits
            table = table.assign(increase=table.loss - final, bits=bits, **about)
            planes[label] = f"{label}\n{FAR.format(**manifest.facts)}", table
        grids = pd.concat(table for _, table in planes.values())
        columns = math.ceil(math.sqrt(len(planes)))
        height = TEXT / max(2, columns) * 0.8 + 0.12 / math.ceil(len(planes) / columns)
        figure, axes = subplots([*planes], columns, height, layout="compressed")
        # Levels for all panels, closer together near zero.
        surface = grids[grids.point == "grid"].increase
        bounds = surface.max() * (np.arange(LEVELS + 1) / LEVELS) ** 2
        bounds = bounds if surface.min() >= 0 else np.array([surface.min(), *bounds])
        for name, (title, table) in planes.items():
            filled = _draw_panel(axes[name], title, table, bounds)
            # One extent, so that the widths of valleys can be compared.
            axes[name].set(xlim=_ends(grids.x), ylim=_ends(grids.y), facecolor="0.93")
            axes[name].label_outer()
        increase = "L − L(Θₖ) (nats/token)"
        figure.colorbar(
            filled,
            ax=[*axes.values()],
            ticks=bounds,
            label=increase,
            format="{x:.2g}",
            aspect=30,
            pad=0.01,
        )
        grids = grids.rename(columns={"point": "segment"}).assign(x_axis=ALONG, y_axis=ACROSS)
        return sheet.picture(figure, [*axes.values()][:1], columned(grids))


def _ends(values: "pd.Series") -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _draw_panel(
    ax: "Axes", title: str, table: "pd.DataFrame", bounds: np.ndarray
) -> "QuadContourSet":
    """Draw the contours of a plane and its points; return the filled contours."""
    from matplotlib.colors import BoundaryNorm

    surface = table[table.point == "grid"].pivot(index="y", columns="x", values="increase")
    shape = (surface.columns, surface.index, surface, bounds)
    filled = ax.contourf(*shape, cmap="cividis_r", norm=BoundaryNorm(bounds, 256))
    ax.contour(*shape, colors="0.25", linewidths=0.3)
    for name, (marker, text) in MARKS.items():
        point = table[table.point == name]
        look: Look = {"marker": marker, "markersize": 5, "linestyle": "none", "label": text}
        ax.plot(point.x, point.y, color="white", markeredgecolor="black", **look)
    ax.set(title=title, xlabel=ALONG, ylabel=ACROSS)
    ax.locator_params(axis="x", nbins=5)
    ax.set_aspect("equal")
    ax.grid(False)
    return filled
