"""Every metric against tokens, a panel for each quantizer or one in full precision."""

from typing import Any, Literal

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.layout import Evaluations, Measured
from ptq_dynamics.measure.names import LOSS, QUANTIZED

# Points, of lines that may lie on each other.
WIDEST, NARROWEST = 3.2, 0.8


class OverTokensOptions(Strict):
    """`quantized_losses`: the loss under every quantizer beside that in full precision; `means`:
    under quantizers the ends of runs, and trunks' means between branches, before all else."""

    quantized_losses: bool = False
    means: bool = False


class OverTokens(Measured):
    """A panel for every metric and quantizer. Dotted: the learning rate."""

    layout: Literal["over_tokens"]
    metrics: Evaluations
    quantized = QUANTIZED | {LOSS}
    options: OverTokensOptions = OverTokensOptions()

    def draw(self, sheet: Any) -> Any:
        """Draw the figure."""
        data, wanted = sheet.data, list(sheet.data.wanted())
        labels, one = data.labels, len({metric for metric, _ in wanted}) == 1
        for metric, quantizer in wanted:
            # The same metric in all panels: one scale compares them.
            parts: list[Any] = [data.points(metric, quantizer)]
            form: dict[str, Any] = {"alike": metric * one}
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
            if quantizer and self.options.means:
                parts.append(data.phase_means(metric, quantizer))
                form["faint"] = True
            sheet.add(data.over_tokens(metric, quantizer, **form), *parts)
        return sheet.publish(labels, taller=1.3 if len(sheet.panels) == 1 else 1.0)
