"""What runs show while they train, and errors beside it, against tokens."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from ptq_dynamics.base.fields import Once, Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.figures.layout import Measured
from ptq_dynamics.measure.names import CHECKPOINT, EIGENVALUE, EIGENVALUES, OfRuns
from ptq_dynamics.train.settings import TRAINING


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

    def draw(self, sheet: Any) -> Any:
        """Draw the figure."""
        data, lineage = sheet.data, self.options.lineage
        for metric, quantizer in data.wanted():
            if metric == EIGENVALUES:
                panel, points = data.panel(metric, quantizer, "Rank"), _ranks(data)
            else:
                panel = data.over_tokens(metric, quantizer)
                points = data.points(metric, quantizer, lineage=lineage)
            sheet.add(replace(panel, log_y=panel.log_y or self.options.log), points)
        sheet.add_rates(lineage=lineage)
        return sheet.publish(lineage=lineage)


def _ranks(data: Any) -> Any:
    """Magnitudes of the leading eigenvalues by rank, at every trajectory's last checkpoint."""
    import pandas as pd

    from ptq_dynamics.figures.curves import last_of, over_seeds

    parts = []
    ranked = sorted(name for name in {*data.table.metric} if name.startswith(EIGENVALUE))
    for rank, name in enumerate(ranked, start=1):
        rows = data.rows(name, None)
        rows = over_seeds(rows.assign(value=rows.value.abs(), rank=rank), CHECKPOINT)
        parts.append(last_of(data.along(rows, "rank")))
    return pd.concat(parts).sort_values(["curve", "segment", "x"], kind="stable")
