"""Every metric against tokens, a panel for each quantizer or one in full precision."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.layout import Evaluations, Measured
from ptq_dynamics.figures.settings import UNDER
from ptq_dynamics.measure.names import LOSS

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet

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
    options: OverTokensOptions = OverTokensOptions()

    @model_validator(mode="after")
    def _shows_quantizers(self) -> Self:
        asked = self.options.quantized_losses
        if self.quantizers and not (asked and LOSS in self.metrics):
            self._has(self.quantized, f"what it shows under {self.quantizers[0]}")
        if asked and not (LOSS in self.metrics and self.quantizers):
            raise ValueError(
                "options.quantized_losses goes with the metric loss and quantizers; name them, or "
                "leave it out"
            )
        for label in self.curves if asked else ():
            if (of := UNDER.fullmatch(label)) and of[1] in self.curves:
                raise ValueError(
                    f"curves: {label!r} is what options.quantized_losses may call {of[1]!r} "
                    "under a quantizer; rename it"
                )
        return self

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure; what branches off has panels of its own where that is asked for."""
        data, wanted = sheet.data, list(sheet.data.wanted())
        trunks = {run.name for run in sheet.settings.runs if run.trunk is None}
        phases = self.options.phases and any(run.trunk for run in sheet.settings.runs)
        labels = data.labels
        for metric, quantizer in wanted:
            panel, parts = data.over_tokens(metric, quantizer), list[Any]()
            if metric == LOSS and self.options.quantized_losses:
                parts, widths = _quantized_losses(sheet)
                panel = replace(panel, title="Loss", widths=widths)
                labels = [*labels, *(label for label in widths if label not in labels)]
            else:
                parts = [data.points(metric, quantizer, lineage=True)]
            if phases:
                parts = [part[part.segment.isin(trunks)] for part in parts]
            sheet.add(panel, *parts, data.learning_rates(lineage=True))
        # The same metric in all panels: one scale compares them.
        one_scale = len({metric for metric, _ in wanted}) == 1
        if not phases:
            return sheet.publish(labels, one_scale=one_scale and len(wanted) > 1, lineage=True)
        for metric, quantizer in wanted:
            self._add_phases(sheet, metric, quantizer)
        opening = 2 if len(wanted) == 1 else 1
        return sheet.publish(labels, 3, one_scale=one_scale, lineage=True, opening=opening)

    def _add_phases(self, sheet: "Sheet", metric: str, quantizer: str | None) -> None:
        """A panel for every curve that has something that branches off, with what is made of it."""
        from ptq_dynamics.figures.style import whose

        points = sheet.data.against_phase(metric, quantizer)
        for curve in dict.fromkeys(map(whose, points.curve)):
            part = points[[whose(each) == curve for each in points.curve]]
            sheet.add(sheet.data.panel(metric, quantizer, PHASE, curve), part)


def _quantized_losses(sheet: "Sheet") -> tuple[list[Any], dict[str, float]]:
    """The points of a panel of the loss in full precision and under every quantizer, and how wide
    the lines of its curves are: with ever fewer bits narrower, and above those with more, as they
    may differ by less than a line is wide."""
    data = sheet.data
    parts = [data.points(LOSS, None, lineage=True)]
    widths = dict.fromkeys(data.labels, WIDEST)
    ordered = sorted(data.quantizers.values(), key=lambda shown: -shown.bits)
    for number, shown in enumerate(ordered, start=1):
        under = {label: f"{label} ({data.called[shown.name]})" for label in data.labels}
        points = data.points(LOSS, shown.name, lineage=True)
        parts.append(points.assign(curve=points.curve.map(under)))
        width = WIDEST + (NARROWEST - WIDEST) * number / len(ordered)
        widths |= dict.fromkeys(under.values(), width)
    return parts, widths
