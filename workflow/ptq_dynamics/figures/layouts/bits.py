"""Losses at the ends of runs, less the loss of a reference run, against the bits of a weight."""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import model_validator

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.figures.labels import METHODS, Panel, in_groups
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

    @model_validator(mode="after")
    def _has_reference(self) -> Self:
        beside = self.options.beside
        for label, members in self.curves.items():
            if len(members) > 1:
                raise ValueError(f"curves.{label} has {len(members)} trajectories; keep the last")
        for group, curves in in_groups(self.curves).items():
            if beside not in curves.values() or len(curves) < 2:
                named = ", ".join(curves.values())
                where = f"curves{f' of group {group}' * bool(group)} are {named}"
                raise ValueError(f"{where}: must be {beside!r} (options.beside) and others")
        return self

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        from ptq_dynamics.figures.axes import draw_panel
        from ptq_dynamics.figures.style import GUIDE

        data, beside = sheet.data, self.options.beside
        others = {name for curves in data.groups.values() for name in curves.values()} - {beside}
        whose = f"Loss of {others.pop()}" if len(others) == 1 else "Loss"
        label = f"{whose} above that of {beside.lower()} (nats/token)"
        for method in dict.fromkeys(shown.method for shown in data.quantizers.values()):
            own = [q.name for q in data.quantizers.values() if q.method == method]
            for group, curves in data.groups.items():
                points = self._points(data, own, curves)
                if points.y.isna().all():  # the scale leaves out the reference, or all others
                    continue
                called = METHODS.get(method, method.upper())
                title = f"{group}\n{called[:1].upper()}{called[1:]}".strip()
                panel = Panel(title, "Bits of a weight", label, form="bars", alike=method)
                sheet.add(panel, points)
        if not sheet.panels:
            why = f"no curve beside {beside!r} in any group"
            raise Problem(f"{data.settings.scale} has {why}; choose other figures")

        def draw(ax: "Axes", panel: Panel, table: "pd.DataFrame", styles: "Styles") -> None:
            draw_panel(ax, panel, table, styles)
            ax.axhline(0, label=f"{beside} (zero)").set(**GUIDE)
            places = sorted({*table.x})
            ax.set_xscale("log", base=2)
            ax.set_xticks(places, ["full" if place == FULL else str(place) for place in places])
            ax.minorticks_off()

        return sheet.publish(draw=draw)

    def _points(self, data: "Curves", own: list[str], curves: dict[str, str]) -> "pd.DataFrame":
        """Return the differences of the curves of a group, under quantizers of one method."""
        import pandas as pd

        from ptq_dynamics.figures.curves import over_seeds, placed

        rows = [data.rows(names.LOSS, quantizer) for quantizer in (*own, None)]
        ends = [each.groupby([names.TRAJECTORY, names.SEED]).tail(1) for each in rows]
        table = data.members.merge(pd.concat(ends), on=names.TRAJECTORY)
        table = table.assign(curve=table.curve.map(curves)).dropna(subset="curve")
        is_reference, key = table.curve == self.options.beside, [names.SEED, "quantizer"]
        beside = table[is_reference].set_index(key)[names.VALUE].rename("beside")
        table = table[~is_reference].join(beside, on=key)
        table = table.assign(value=table.value - table.beside, stderr=float("nan"))
        mean = over_seeds(table, "curve", "quantizer")
        points = placed(mean, mean.bits.astype("Int64").fillna(FULL), mean.curve)
        return points.sort_values(["curve", "x"], kind="stable")
