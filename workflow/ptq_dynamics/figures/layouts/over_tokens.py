"""Every metric against tokens, a panel for each quantizer or one in full precision."""

from typing import Any, Literal

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.layout import Evaluations, Measured
from ptq_dynamics.measure.names import LOSS, QUANTIZED

PHASE = "Share of the phase"
# Points, of lines that may lie on each other.
WIDEST, NARROWEST = 3.2, 0.8


class OverTokensOptions(Strict):
    """`quantized_losses`: the loss under every quantizer beside that in full precision; `phases`:
    further panels along what branches off, from its beginning to its end."""

    quantized_losses: bool = False
    phases: bool = False


class OverTokens(Measured):
    """A panel for every metric and quantizer. Dotted: the learning rate."""

    layout: Literal["over_tokens"]
    metrics: Evaluations
    quantized = QUANTIZED | {LOSS}
    options: OverTokensOptions = OverTokensOptions()

    def draw(self, sheet: Any) -> Any:
        """Draw the figure; what branches off has panels of its own where that is asked for."""
        data, wanted = sheet.data, list(sheet.data.wanted())
        phases, labels = self.options.phases and bool(data.starts), data.labels
        for metric, quantizer in wanted:
            parts, form = [data.points(metric, quantizer)], dict[str, Any]()
            if metric == LOSS and self.options.quantized_losses:
                # With ever fewer bits narrower, and above those with more, as they may differ by
                # less than a line is wide.
                widths = dict.fromkeys(data.labels, WIDEST)
                ordered = sorted(data.quantizers.values(), key=lambda shown: -shown.bits)
                for number, shown in enumerate(ordered, start=1):
                    under = {label: f"{label} ({data.called[shown.name]})" for label in data.labels}
                    points = data.points(LOSS, shown.name)
                    parts.append(points.assign(curve=points.curve.map(under)))
                    width = WIDEST + (NARROWEST - WIDEST) * number / len(ordered)
                    widths |= dict.fromkeys(under.values(), width)
                labels, form = [*widths], {"title": "Loss", "widths": widths}
            if phases:
                parts = [part[part.segment.isin(data.runs - data.starts.keys())] for part in parts]
            sheet.add(data.over_tokens(metric, quantizer, **form), *parts, data.learning_rates())
        for metric, quantizer in wanted if phases else ():
            _add_phases(sheet, metric, quantizer)
        # The same metric in all panels: one scale compares them.
        one_scale = len({metric for metric, _ in wanted}) == 1
        wide = {"columns": 3, "opening": 2 if len(wanted) == 1 else 1} if phases else {}
        return sheet.publish(labels, one_scale=one_scale, **wide)


def _add_phases(sheet: Any, metric: str, quantizer: str | None) -> None:
    """A panel for every curve that has something that branches off, with what is made of it,
    against the share of its steps; the last of averages, which have no beginning, at the end."""
    from ptq_dynamics.figures.style import whose

    data = sheet.data
    table = data.select(metric, quantizer)
    start = table.trajectory.map(data.starts).astype(float)
    last = table.groupby("trajectory").step.transform("max").astype(float)
    share = (table.step.astype(float) - start) / (last - start)
    ends = ~table.trajectory.isin(data.runs) & ~table.trajectory.duplicated(keep="last")
    points = data.along(table.assign(share=share.mask(ends, 1.0)), "share")
    # A run goes through the points where its branches begin, and is no phase itself.
    points = points[~points.segment.isin(data.runs - data.starts.keys())]
    for curve, part in points.groupby(points.curve.map(whose), sort=False):
        sheet.add(data.panel(metric, quantizer, PHASE, f"{curve}\n{{}}"), part)
