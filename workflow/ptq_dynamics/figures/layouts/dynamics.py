"""What runs show while they train, and errors beside it, against tokens."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ptq_dynamics.base.fields import Once, Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.figures.layout import Measured
from ptq_dynamics.measure.names import EIGENVALUES, OfRuns
from ptq_dynamics.train.settings import TRAINING

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet


class DynamicsOptions(Strict):
    """`lineage`: a curve with a run and a branch of it goes over to the branch; `log`: logarithmic
    vertical axes."""

    lineage: bool = False
    log: bool = False


class Dynamics(Measured):
    """A panel for every metric and quantizer. Dotted: the learning rate."""

    layout: Literal["dynamics"]
    metrics: Annotated[tuple[OfRuns, ...], Field(min_length=1), Once]
    options: DynamicsOptions = DynamicsOptions()

    def check(self, place: str, timeline: Any) -> None:
        """Averages have no training curve."""
        averages = [name for name in self.trajectories if name in timeline.config.runs.averages]
        metrics = [metric for metric in self.metrics if metric in TRAINING]
        if averages and metrics:
            raise Problem(
                f"{place}.metrics has {metrics[0]}, which an average such as {averages[0]} has "
                "not; show runs alone, or another metric"
            )

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        lineage = self.options.lineage
        for metric, quantizer in sheet.data.wanted():
            panel = sheet.data.over_tokens(metric, quantizer)
            if metric == EIGENVALUES:
                panel = sheet.data.panel(metric, quantizer, "Rank")
            panel = replace(panel, log_y=panel.log_y or self.options.log)
            sheet.add(panel, sheet.data.points(metric, quantizer, lineage=lineage))
        sheet.add_rates(lineage=lineage)
        return sheet.publish(lineage=lineage)
