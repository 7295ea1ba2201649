"""Errors of runs against the errors that laws predict for them from other runs."""

from typing import TYPE_CHECKING, Literal

import numpy as np

from ptq_dynamics.figures.labels import Panel
from ptq_dynamics.figures.layout import Layout, Some
from ptq_dynamics.measure.names import CHECKPOINT_ID, LOSS, QUANTIZATION_ERROR, TRAJECTORY

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ptq_dynamics.figures.panels import Picture, Sheet
    from ptq_dynamics.figures.style import Styles

FACTOR = "Typical error of a prediction"
MARKERS = ("o", "s", "^", "D")  # of quantizers


class Laws(Layout):
    """The typical factor between predicted and measured errors by law and quantizer, and a panel of
    both for every law under the first quantizer. A trunk and its branches are predicted from all
    other runs."""

    layout: Literal["laws"]
    quantizers: Some[str]
    metrics: Some[Literal["quantization_error"]]

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        import pandas as pd

        from ptq_dynamics.figures import law

        data, key = sheet.data, [TRAJECTORY, CHECKPOINT_ID]
        before = data.select(LOSS, None).set_index(key).value.rename("loss")
        peaks = {
            run.name: data.inputs[run.label][0].facts["schedule"]["peak"]
            for run in data.settings.runs
        }
        factors, panels = list[dict[str, object]](), list[tuple[Panel, pd.DataFrame]]()
        for quantizer in self.quantizers:
            table = data.select(QUANTIZATION_ERROR, quantizer).join(before, on=key)
            table = table[table.tokens >= law.EARLY * table.tokens.max()]
            table = table.assign(peak=table.trajectory.map(peaks))
            groups = [data.trunks.get(name) or name for name in table.trajectory]
            for number, name in enumerate(law.LAWS):
                predicted = law.held_out(law.features(table), name, groups, table.value.to_numpy())
                factor = law.off(predicted, table.value.to_numpy())
                points = data.along(table.assign(predicted=100 * predicted), "predicted")
                about = {"curve": data.called[quantizer], "quantizer": quantizer, "axis": "left"}
                about["trajectory"] = " ".join(dict.fromkeys(points.trajectory))
                factors.append({**about, "segment": name, "x": float(factor), "y": number})
                words = f"{{}}\nlaw of {name}"
                panel = data.panel(QUANTIZATION_ERROR, quantizer, "Predicted error (%)", words)
                panels.append((panel, points[points.y > 0]))
        table = pd.DataFrame(factors).assign(metric="factor", low=np.nan, high=np.nan)
        sheet.add(Panel(FACTOR, "Predicted / measured error, or its inverse", ""), table)
        for panel, points in panels[: len(law.LAWS)]:
            sheet.add(panel, points)
        return sheet.publish(draw=_draw_panel, is_first_large=True)


def _draw_panel(ax: "Axes", panel: Panel, table: "pd.DataFrame", styles: "Styles") -> None:
    from ptq_dynamics.figures.axes import plain_log_ticks

    if not panel.y:
        for (curve, part), marker in zip(table.groupby("curve", sort=False), MARKERS, strict=False):
            ax.plot(part.x, part.y, marker, color="0.2", markersize=5, label=curve, alpha=0.8)
        laws = table.drop_duplicates("segment")
        ax.set_yticks(laws.y, [f"law of {name}" for name in laws.segment])
        ax.set(
            title=panel.title,
            xlabel=panel.x,
            xlim=(1, 1.05 * table.x.max()),
            ylim=(len(laws) - 0.5, -0.6),
        )
        ax.tick_params(axis="y", length=0)
        return
    for curve, part in table.groupby("curve", sort=False):
        line = styles[str(curve)]
        ax.plot(part.x, part.y, line.marker, color=line.color, label=curve, alpha=0.6)
    low, high = table[["x", "y"]].min().min(), table[["x", "y"]].max().max()
    ax.plot([low, high], [low, high], color="0.5", linestyle="--", linewidth=0.6, zorder=1)
    ax.set(title=panel.title, xlabel=panel.x, ylabel=panel.y, xscale="log", yscale="log")
    plain_log_ticks(ax.xaxis)
    plain_log_ticks(ax.yaxis)
