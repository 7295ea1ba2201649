"""Checkpoints of trajectories in their first two principal components."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ptq_dynamics.base import needs
from ptq_dynamics.curvature.geometry import SCORES
from ptq_dynamics.figures.labels import Panel
from ptq_dynamics.figures.layout import Layout, Reads
from ptq_dynamics.measure.names import SEED, TRAJECTORY

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ptq_dynamics.figures.panels import Picture, Sheet
    from ptq_dynamics.figures.style import Look, Styles

ARROW = "-|>,head_length=0.8,head_width=0.35"


class Pca(Layout):
    """The first two of `components` principal components, with a line per trajectory and seed."""

    layout: Literal["pca"]
    quantizers: tuple[()] = ()
    metrics: tuple[()] = ()
    components: Annotated[int, Field(ge=2)]

    @property
    def reads(self) -> Reads:
        """Principal components."""
        return Reads(components=self.components)

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        from ptq_dynamics.measure.measurements import read_table

        (manifest,) = sheet.data.inputs[needs.COMPONENTS]
        scores = read_table(manifest.file(SCORES), {TRAJECTORY: "string"})
        scores = sheet.data.members.merge(scores, on=TRAJECTORY)
        several = scores.groupby(TRAJECTORY)[SEED].transform("nunique") > 1
        segment = scores.trajectory + (" seed " + scores.seed.astype(str)).where(several, "")
        table = scores.rename(columns={"pc1": "x", "pc2": "y", SEED: "seeds"})
        table = table.assign(segment=segment, axis="left", metric="components")
        x, y = (
            f"Principal component {number} ({100 * share:.0f} % of variance)"
            for number, share in enumerate(manifest.facts["explained"][:2], start=1)
        )
        sheet.add(Panel("", x, y), table)
        return sheet.publish(draw=_draw_panel)


def _draw_panel(ax: "Axes", panel: Panel, table: "pd.DataFrame", styles: "Styles") -> None:
    from ptq_dynamics.figures.axes import mark_end

    for _, part in table.groupby(["curve", "segment"], sort=False):
        label, path = part.curve.iloc[0], part[["x", "y"]].to_numpy()
        line = styles[label]
        look: Look = {"color": line.color, "linestyle": line.dash, "label": label}
        ax.plot(part.x, part.y, marker=line.marker, markersize=1.6, **look)
        x, y = path[:1].T
        mark: Look = {"marker": line.marker, "zorder": 4}
        ax.scatter(x, y, s=14, facecolors="white", edgecolors=line.color, linewidths=0.8, **mark)
        mark_end(ax, path[-1:], line)
        if len(path) > 1:
            # An arrow in the middle shows the direction.
            before, tip = path[len(path) // 2 - 1 :][:2]
            arrow: dict[str, object] = {"arrowstyle": ARROW, "edgecolor": "black"}
            arrow |= {"facecolor": line.color, "linewidth": 0.5, "mutation_scale": 8}
            arrow |= {"shrinkA": 0, "shrinkB": 0}
            ax.annotate("", xy=tip, xytext=tip + 0.1 * (before - tip), arrowprops=arrow, zorder=5)
    ax.set(xlabel=panel.x, ylabel=panel.y)
