"""Losses at the ends of runs, less the loss of a reference run, against the bits of a weight."""

from typing import TYPE_CHECKING, Literal

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.labels import METHODS, Panel
from ptq_dynamics.figures.layout import Layout, Some, Text
from ptq_dynamics.measure import names

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ptq_dynamics.figures.curves import Curves
    from ptq_dynamics.figures.panels import Picture, Sheet
    from ptq_dynamics.figures.style import Styles

FULL = 16  # the place of full precision on the horizontal axis


class BitsOptions(Strict):
    """`beside` names the curve of every group that the other curves are compared with."""

    beside: Text


class Bits(Layout):
    """A panel for every method and group of curves. Below zero, a run has a lower loss than the run
    `beside`. Differences are taken within seeds."""

    grouped = True
    layout: Literal["bits"]
    quantizers: Some[str]
    metrics: tuple[Literal["loss"]]
    options: BitsOptions

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        data, label = sheet.data, f"Loss − {self.options.beside.lower()} (nats/token)"
        methods = dict.fromkeys(shown.method for shown in data.quantizers.values())
        for method in methods:
            own = [q.name for q in data.quantizers.values() if q.method == method]
            for group, curves in data.groups.items():
                points = self._points(data, own, curves)
                title = f"{group}\n{METHODS.get(method, method.upper())}".strip()
                sheet.add(Panel(title, "Bits of a weight", label), points)
        count = len(sheet.panels)
        return sheet.publish(columns=2 if count == 4 else min(count, 3), draw=_draw_panel)

    def _points(self, data: "Curves", own: list[str], curves: dict[str, str]) -> "pd.DataFrame":
        """Return the differences of the curves of a group, under quantizers of one method."""
        import pandas as pd

        from ptq_dynamics.figures.curves import band, over_seeds

        (reference,) = (name for name, words in curves.items() if words == self.options.beside)
        parts = []
        for quantizer in (*own, None):
            rows = data.rows(names.LOSS, quantizer).groupby([names.TRAJECTORY, names.SEED]).tail(1)
            ends = rows.set_index(names.SEED, drop=False)
            beside = ends[ends.trajectory.isin(data.curves[reference])][names.VALUE]
            for curve, words in curves.items():
                if curve != reference:
                    end = ends[ends.trajectory.isin(data.curves[curve])]
                    end = end.assign(
                        value=end.value - beside.reindex(end.index), stderr=float("nan")
                    )
                    mean = over_seeds(end.reset_index(drop=True))
                    place = {"curve": words, "segment": mean.trajectory, "axis": "left"}
                    bits = mean.bits.astype("Int64").fillna(FULL)
                    parts.append(pd.DataFrame({**place, "x": bits, **band(mean)}))
        return pd.concat(parts).sort_values(["curve", "x"], kind="stable")


def _draw_panel(ax: "Axes", panel: Panel, table: "pd.DataFrame", styles: "Styles") -> None:
    from ptq_dynamics.figures.axes import error_bars, zero_level

    zero_level(ax, table)
    places = sorted({*table.x})
    for curve, part in table.groupby("curve", sort=False):
        line = styles[str(curve)]
        error_bars(ax, part, line, str(curve), elinewidth=0.6, markersize=line.area**0.5)
    labels = ["full" if place == FULL else str(place) for place in places]
    ax.set_xscale("log", base=2)
    ax.set_xticks(places, labels)
    ax.minorticks_off()
    ax.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
