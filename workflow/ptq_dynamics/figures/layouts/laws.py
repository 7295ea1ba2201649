"""Errors of runs against the errors that laws predict for them from other runs."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from ptq_dynamics.figures.labels import Panel
from ptq_dynamics.figures.layout import Layout, Reads, Some
from ptq_dynamics.measure.names import QUANTIZATION_ERROR

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet

FACTOR = "Factor between predicted and measured error (1: exact)"


class Laws(Layout):
    """The typical factor between predicted and measured errors by law and quantizer, and a panel of
    both for every law under the first quantizer. A trunk and its branches are predicted from all
    other runs."""

    layout: Literal["laws"]
    quantizers: Some[str]
    metrics: Some[Literal["quantization_error"]]

    @property
    def reads(self) -> Reads:
        """Learning rates."""
        return Reads(of_runs=("the learning rate",))

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        import pandas as pd

        from ptq_dynamics.figures import law

        data = sheet.data
        peaks = {
            run.name: data.inputs[run.label][0].facts["schedule"]["peak"]
            for run in data.settings.runs
        }
        factors, panels = list[dict[str, object]](), list[tuple[Panel, pd.DataFrame]]()
        for quantizer in self.quantizers:
            table = data.beside_loss(QUANTIZATION_ERROR, quantizer)
            table = table[table.tokens >= law.EARLY * table.tokens.max()]
            table = table.assign(peak=table.trajectory.map(peaks))
            groups = [data.trunks.get(name) or name for name in table.trajectory]
            for number, name in enumerate(law.LAWS):
                predicted = law.held_out(law.features(table), name, groups, table.value.to_numpy())
                factor = law.off(predicted, table.value.to_numpy())
                points = data.along(table.assign(predicted=100 * predicted), "predicted")
                about = {"curve": data.called[quantizer], "quantizer": quantizer, "axis": "left"}
                about["trajectory"] = " ".join(dict.fromkeys(points.trajectory))
                words = law.WORDS[name]
                factors.append({**about, "segment": words, "x": float(factor), "y": number})
                words = f"{data.called[quantizer]}, from {words}"
                panel = data.panel(QUANTIZATION_ERROR, quantizer, "Predicted error (%)", words)
                panel = replace(panel, log_x=True, log_y=True, diagonal=True, form="points")
                panel = replace(panel, alike="measured", y="Measured error (%)")
                points = points[points.y > 0].assign(low=np.nan, high=np.nan)
                panels.append((panel, points))
        table = pd.DataFrame(factors).assign(metric="factor", low=np.nan, high=np.nan)
        words = "Laws, tested on runs outside their fits"
        sheet.add(Panel(words, FACTOR, "", form="rows", start=1), table)
        for panel, points in panels[: len(law.LAWS)]:
            sheet.add(panel, points)
        curves = [*data.labels, *data.called.values()]
        return sheet.publish(curves, is_first_large=True)
