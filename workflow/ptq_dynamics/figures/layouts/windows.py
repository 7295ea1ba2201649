"""Averages at the end of a run by how far back they reach."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.figures.layout import Evaluations, Measured
from ptq_dynamics.figures.settings import Ages
from ptq_dynamics.measure.names import LOSS, QUANTIZED

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet

AGE = "Mean age (tokens)"


class Windows(Measured):
    """Averages, a point each, against the mean age of what is in them; of other trajectories the
    end is a level to compare with."""

    layout: Literal["windows"]
    metrics: Evaluations
    quantized = QUANTIZED | {LOSS}

    def check(self, place: str, timeline: Any) -> None:
        """There is something to draw."""
        if not self.ages(timeline):
            raise Problem(
                f"{place}.curves has no averages at the end of a run, which it draws; name some "
                "that config/runs.yaml has with intervals or memories"
            )

    def ages(self, timeline: Any) -> Ages:
        """Of all averages at the end of a run."""
        found = []
        for name in self.trajectories:
            average = timeline.trajectory(name)
            if hasattr(average, "ages"):
                model = average.model_shape(timeline)
                ages = average.ages(timeline)
                found += [(name, n, age * model.batch * model.context) for n, age in ages.items()]
        return tuple(found)

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        for metric, quantizer in sheet.data.wanted(quantized_losses=True):
            panel = sheet.data.panel(metric, quantizer, AGE)
            points = sheet.data.against_age(metric, quantizer)
            sheet.add(replace(panel, tokens_x=True, log_x=True), points)
        return sheet.publish()
