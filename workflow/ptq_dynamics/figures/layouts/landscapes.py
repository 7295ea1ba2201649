"""Loss landscapes in the plane of a final checkpoint, an earlier one and its quantized weights."""

import math
from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from ptq_dynamics.base import needs
from ptq_dynamics.base.fields import Share, Strict
from ptq_dynamics.curvature.settings import GRID, POINTS
from ptq_dynamics.figures.labels import Panel
from ptq_dynamics.figures.layout import Layout, Reads, Some, Text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ptq_dynamics.figures.panels import Picture, Sheet

MARKS = {  # markers and labels of the three points
    "final": ("o", "final Θₖ"),
    "previous": ("s", "earlier Θₖ₋₁"),
    "quantized": ("X", "quantized Q(Θₖ)"),
}
ALONG, ACROSS = "Distance along Θₖ₋₁ − Θₖ", "Distance across"
FAR = "Θₖ₋₁: {distance_previous:.2g}, Q(Θₖ): {distance_quantized:.2g}"
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
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import BoundaryNorm

        from ptq_dynamics.figures.axes import write_labels
        from ptq_dynamics.figures.style import TEXT

        called, planes = sheet.data.called, list[pd.DataFrame]()
        for (curve, (name,)), quantizer in product(sheet.settings.curves, called):
            (manifest,) = sheet.data.inputs[needs.landscape(name, quantizer)]
            grid, points = (pd.read_csv(manifest.file(file)) for file in (GRID, POINTS))
            table = pd.concat([grid.assign(point="grid"), points])
            table = table.assign(increase=table.loss - points.loss[points.point == "final"].iloc[0])
            about = {"curve": curve, "trajectory": name, "quantizer": quantizer, "axis": "left"}
            about |= {"metric": "landscape", "unit": "nats/token"}
            table = table.assign(bits=sheet.data.quantizers[quantizer].bits, **about)
            heading = curve if len(called) == 1 else f"{curve}, {called[quantizer]}"
            planes.append(table.rename(columns={"point": "segment"}))
            title = f"{heading}\n{FAR.format(**manifest.facts)}"
            sheet.add(Panel(title, ALONG, ACROSS), planes[-1])
        grids = pd.concat(planes)
        # Levels for all panels, closer together near zero.
        surface = grids[grids.segment == "grid"].increase
        bounds = surface.max() * (np.arange(LEVELS + 1) / LEVELS) ** 2
        bounds = bounds if surface.min() >= 0 else np.array([surface.min(), *bounds])
        colors = ScalarMappable(BoundaryNorm(bounds, 256), "cividis_r")
        # One extent, so that the widths of valleys can be compared.
        limits = {"xlim": (grids.x.min(), grids.x.max()), "ylim": (grids.y.min(), grids.y.max())}

        def draw(ax: "Axes", panel: Panel, table: "pd.DataFrame", styles: object) -> None:
            surface = table[table.segment == "grid"].pivot(
                index="y", columns="x", values="increase"
            )
            shape = (surface.columns, surface.index, surface, bounds)
            ax.contourf(*shape, cmap=colors.cmap, norm=colors.norm)
            ax.contour(*shape, colors="0.25", linewidths=0.3)
            for name, (marker, text) in MARKS.items():
                point = table[table.segment == name]
                (drawn,) = ax.plot(point.x, point.y, marker, label=text, markersize=5)
                drawn.set(markerfacecolor="white", markeredgecolor="black")
            write_labels(ax, panel)
            ax.set(facecolor="0.93", **limits)
            ax.set_aspect("equal")
            ax.locator_params(axis="x", nbins=5)
            ax.grid(False)
            ax.label_outer()

        columns = math.ceil(math.sqrt(len(planes)))
        height = TEXT / max(2, columns) * 0.8 + 0.12 / math.ceil(len(planes) / columns)
        labels = [text for _, text in MARKS.values()]
        picture = sheet.publish(labels, columns, draw=draw, height=height)
        figure = picture.figure
        figure.set_layout_engine("compressed", w_pad=0.02, h_pad=0.02, wspace=0.02)
        bar = figure.colorbar(colors, ax=figure.axes, aspect=30, pad=0.01)
        bar.set_ticks(bounds.tolist(), labels=[f"{bound:.2g}" for bound in bounds])
        bar.set_label("L − L(Θₖ) (nats/token)")
        return picture
