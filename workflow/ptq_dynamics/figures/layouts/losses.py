"""The loss in full precision and under every quantizer, and the errors between."""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.panels import publish
from ptq_dynamics.figures.settings import LossesSettings
from ptq_dynamics.figures.words import letters
from ptq_dynamics.measure.names import LOSS

WAY = "Share of the end's weights"


def run(context: Context[LossesSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure, against tokens with the learning rate dotted, or against the share of
    the way along a line between checkpoints."""
    curves = Curves(context)
    along = context.settings.against == "share"
    panels, parts = [], []
    for letter, (metric, quantizer) in zip(
        letters(), curves.wanted(quantized_losses=True), strict=False
    ):
        if along:
            panels.append(curves.panel(letter, metric, quantizer, WAY))
            parts.append(curves.against_share(letter, metric, quantizer))
        else:
            panels.append(curves.over_tokens(letter, metric, quantizer))
            parts.append(curves.points(letter, metric, quantizer))
    said = []
    if not along:
        parts += [curves.learning_rates(panel.name) for panel in panels]
        said = _at_the_end(context.settings, curves)
    return publish(context, panels, parts, curves.labels, said=said)


def _at_the_end(settings: LossesSettings, curves: Curves) -> list[str]:
    """How much larger losses are at the last step of each curve than on the last curve, where that
    has this step too: paired block by block, one standard error, or deviation over seeds."""
    *others, (label, members) = settings.curves
    said = []
    for quantizer in (None, *curves.quantizers):
        found = []
        for other, names in others:
            try:
                table = curves.paired(LOSS, names[-1], members[-1], quantizer)
            except Problem:
                # Of other blocks, or with several checkpoints at a step: no pairs, but drawn.
                continue
            table = table[table.step == table.step.max()]
            if len(table):
                error = table.value.std(ddof=1) if len(table) > 1 else table.stderr.iloc[0]
                found.append(f"{other} {table.value.mean():+.3f} ± {error:.3f}".replace("-", "−"))
        if found:
            what = "full-precision" if quantizer is None else curves.called[quantizer]
            said.append(f"{what} loss less that of {label} at the same step: {', '.join(found)}")
    return said
