"""Errors of runs against the errors that laws predict for them from other runs."""

from typing import TYPE_CHECKING, Literal

from ptq_dynamics.figures.layout import Layout, Some
from ptq_dynamics.measure.names import CHECKPOINT, LOSS, QUANTIZATION_ERROR, TRAJECTORY

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ptq_dynamics.figures.labels import Panel
    from ptq_dynamics.figures.panels import Picture, Sheet
    from ptq_dynamics.figures.style import Styles


class Laws(Layout):
    """A row for every quantizer, a panel for every law. A trunk and its branches are predicted from
    all other runs."""

    layout: Literal["laws"]
    quantizers: Some[str]
    metrics: Some[Literal["quantization_error"]]

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure; titles give the typical factor between predicted and measured errors."""
        from ptq_dynamics.figures import law

        data, key = sheet.data, [TRAJECTORY, CHECKPOINT]
        before = data.select(LOSS, None).set_index(key).value.rename("loss")
        peaks = {
            run.name: data.inputs[run.label][0].facts["schedule"]["peak"]
            for run in data.settings.runs
        }
        for quantizer in self.quantizers:
            table = data.select(QUANTIZATION_ERROR, quantizer).join(before, on=key)
            table = table[table.tokens >= law.EARLY * table.tokens.max()]
            table = table.assign(peak=table.trajectory.map(peaks))
            groups = [data.trunks.get(name) or name for name in table.trajectory]
            for name in law.LAWS:
                predicted = law.held_out(law.features(table), name, groups, table.value.to_numpy())
                factor = law.off(predicted, table.value.to_numpy())
                points = data.along(table.assign(predicted=100 * predicted), "predicted")
                words = f"{{}}\nby {name}: × {factor:.2f}"
                panel = data.panel(QUANTIZATION_ERROR, quantizer, "Predicted error (%)", words)
                sheet.add(panel, points[points.y > 0])
        return sheet.publish(columns=len(law.LAWS), draw=_draw_panel)


def _draw_panel(ax: "Axes", panel: "Panel", table: "pd.DataFrame", styles: "Styles") -> None:
    from ptq_dynamics.figures.axes import plain_log_ticks

    for curve, part in table.groupby("curve", sort=False):
        line = styles[str(curve)]
        ax.plot(part.x, part.y, line.marker, color=line.color, label=curve, alpha=0.6)
    low, high = table[["x", "y"]].min().min(), table[["x", "y"]].max().max()
    ax.plot([low, high], [low, high], color="0.5", linestyle="--", linewidth=0.6, zorder=1)
    ax.set(title=panel.title, xlabel=panel.x, ylabel=panel.y, xscale="log", yscale="log")
    plain_log_ticks(ax.xaxis)
    plain_log_ticks(ax.yaxis)
