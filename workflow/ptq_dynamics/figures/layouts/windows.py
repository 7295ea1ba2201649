"""Averages at the end of a run against their mean age."""

from typing import TYPE_CHECKING, Literal

from ptq_dynamics.figures.layout import Evaluations, Layout, Reads
from ptq_dynamics.measure.names import CHECKPOINT_ID, TRAJECTORY

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet

AGE = "Mean age (tokens)"  # the horizontal axis


class Windows(Layout):
    """Averages against the mean age of their checkpoints; ends of other runs are levels."""

    layout: Literal["windows"]
    metrics: Evaluations

    @property
    def reads(self) -> Reads:
        """Ages of averages."""
        return Reads(ages=True)

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        import pandas as pd

        data, key = sheet.data, [TRAJECTORY, CHECKPOINT_ID]
        ages = pd.DataFrame(sheet.settings.ages, columns=[*key, "age"])
        for metric, quantizer in data.wanted(quantized_losses=True):
            aged = data.along(data.select(metric, quantizer).merge(ages, on=key), "age")
            aged = aged.assign(segment=aged.curve).sort_values("x", kind="stable")
            parts = [aged[aged.curve == curve] for curve in data.labels]
            last = data.last_of(data.points(metric, quantizer)).assign(axis="level")
            levels = last[~last.segment.isin(ages.trajectory)]
            parts += [levels.assign(x=end) for end in (ages.age.min(), ages.age.max())]
            panel = data.panel(metric, quantizer, AGE, tokens_x=True, log_x=True)
            sheet.add(panel, *parts)
        return sheet.publish()
