"""The loss in full precision and under every quantizer, and the errors between."""

from typing import TYPE_CHECKING, Any, Literal

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.figures.layout import Evaluations, Measured
from ptq_dynamics.measure.names import LOSS, QUANTIZED

if TYPE_CHECKING:
    from ptq_dynamics.figures.curves import Curves
    from ptq_dynamics.figures.panels import Picture, Sheet

WAY = "Share of the end's weights"


class LossesOptions(Strict):
    """What is on the horizontal axis: tokens, or the share of the way along a line between
    checkpoints."""

    against: Literal["tokens", "share"] = "tokens"


class Losses(Measured):
    """A panel for every metric and quantizer. Dotted, against tokens: the learning rate."""

    layout: Literal["losses"]
    metrics: Evaluations
    quantized = QUANTIZED | {LOSS}
    options: LossesOptions = LossesOptions()

    def check(self, place: str, timeline: Any) -> None:
        """Only a line between checkpoints has shares of a way."""
        averages = timeline.config.runs.averages.items()
        lines = [name for name, each in averages if each.sources().keys() == {"start", "end"}]
        others = [name for name in self.trajectories if name not in lines]
        if self.options.against == "share" and others:
            raise Problem(
                f"{place}.options.against is share, but {others[0]} is no line between checkpoints "
                f"(lines: {', '.join(lines) or 'none'}); take tokens"
            )

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        data = sheet.data
        for metric, quantizer in data.wanted(quantized_losses=True):
            if self.options.against == "share":
                panel = data.panel(metric, quantizer, WAY)
                sheet.add(panel, data.against_share(metric, quantizer))
            else:
                panel = data.over_tokens(metric, quantizer)
                sheet.add(panel, data.points(metric, quantizer))
        sheet.add_rates()
        return sheet.publish(said=_at_the_end(data) if self.options.against == "tokens" else [])


def _at_the_end(data: "Curves") -> list[str]:
    """How much larger losses are at the last step of each curve than on the last curve, where that
    has this step too: paired block by block, one standard error, or deviation over seeds."""
    *others, (label, members) = data.curves.items()
    said = []
    for quantizer in (None, *data.quantizers):
        found = []
        for other, names in others:
            try:
                table = data.paired(LOSS, names[-1], members[-1], quantizer)
            except Problem:
                # Of other blocks, or with several checkpoints at a step: no pairs, but drawn.
                continue
            table = table[table.step == table.step.max()]
            if len(table):
                error = table.value.std(ddof=1) if len(table) > 1 else table.stderr.iloc[0]
                found.append(f"{other} {table.value.mean():+.3f} ± {error:.3f}".replace("-", "−"))
        if found:
            what = "full-precision" if quantizer is None else data.called[quantizer]
            said.append(f"{what} loss less that of {label} at the same step: {', '.join(found)}")
    return said
