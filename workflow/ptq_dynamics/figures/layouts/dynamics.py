"""What runs show while they train, and errors beside it, against tokens."""

from typing import Any, Literal

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.layout import Measured, Some
from ptq_dynamics.measure.names import CHECKPOINT, EIGENVALUE, EIGENVALUES, OfRuns
from ptq_dynamics.train.settings import TRAINING


class DynamicsOptions(Strict):
    """`log`: logarithmic vertical axes."""

    log: bool = False


class Dynamics(Measured):
    """A panel for every metric and quantizer. Dotted: the learning rate."""

    layout: Literal["dynamics"]
    metrics: Some[OfRuns]
    options: DynamicsOptions = DynamicsOptions()

    def check(self, place: str, timeline: Any) -> None:
        """Averages have no training curve."""
        for metric in self.metrics:
            if metric in TRAINING:
                self.no_averages(f"{place}.metrics", timeline, metric)

    def draw(self, sheet: Any) -> Any:
        """Draw the figure."""
        data, form = sheet.data, {"log_y": True} if self.options.log else {}
        for metric, quantizer in data.wanted():
            if metric == EIGENVALUES:
                sheet.add(data.panel(metric, quantizer, "Rank", **form), _ranks(data))
            else:
                panel = data.over_tokens(metric, quantizer, **form)
                sheet.add(panel, data.points(metric, quantizer))
        return sheet.publish()


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
