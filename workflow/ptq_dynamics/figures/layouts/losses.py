"""The loss in full precision and under every quantizer, and the errors between."""

from collections import defaultdict
from itertools import product
from typing import Any, Literal

import numpy as np

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.figures.layout import Evaluations, Measured
from ptq_dynamics.measure.names import LOSS, QUANTIZED, Paired
from ptq_dynamics.measure.settings import Series

WAY = "Share of the end's weights"


class LossesOptions(Strict):
    """The horizontal axis: tokens, or the share of the way along a line between checkpoints."""

    against: Literal["tokens", "share"] = "tokens"


class Losses(Measured):
    """A panel for every metric and quantizer. Dotted, against tokens: the learning rate."""

    layout: Literal["losses"]
    metrics: Evaluations
    quantized = QUANTIZED | {LOSS}
    options: LossesOptions = LossesOptions()

    def draw(self, sheet: Any) -> Any:
        """Draw the figure."""
        data, along = sheet.data, self.options.against == "share"
        for metric, quantizer in data.wanted(quantized_losses=True):
            if along:
                table = data.select(metric, quantizer)
                share = table.step / table.groupby("trajectory").step.transform("max")
                points = data.along(table.assign(share=share), "share")
                sheet.add(data.panel(metric, quantizer, WAY), points)
            else:
                sheet.add(data.over_tokens(metric, quantizer), data.points(metric, quantizer))
        return sheet.publish(said=[] if along else _at_the_end(data))


def _at_the_end(data: Any) -> list[str]:
    """How much larger losses are at the last step of each curve than on the last curve, where that
    has this step too: paired block by block, one standard error, or deviation over seeds."""
    *others, (label, members) = data.curves.items()
    said = []
    for quantizer in (None, *data.quantizers):
        found = []
        for other, names in others:
            try:
                pairs = paired(data, LOSS, names[-1], members[-1], quantizer)
            except Problem:
                # Of other blocks, or with several checkpoints at a step: no pairs, but drawn.
                continue
            last = max((step for _, step in pairs), default=None)
            ends = [found for (_, step), found in pairs.items() if step == last]
            if ends:
                values = np.array([value for value, _ in ends])
                error = values.std(ddof=1) if len(ends) > 1 else ends[0][1]
                found.append(f"{other} {values.mean():+.3f} ± {error:.3f}".replace("-", "−"))
        if found:
            what = "Full-precision" if quantizer is None else data.called[quantizer]
            said.append(f"{what} loss less that of {label} at the same step: {', '.join(found)}.")
    return said


def paired(
    data: Any, metric: Paired, one: str, other: str, quantizer: str | None
) -> dict[tuple[int | None, int], tuple[float, float]]:
    """How much larger a metric of losses is on one trajectory than on another, by seed and step,
    the mean over the calibration draws of both, and its standard error over the blocks that both
    are validated on."""
    from ptq_dynamics.measure.pairing import difference

    pairs = defaultdict[int | None, list[tuple[Series, Series]]](list)
    series = [each for each in data.settings.series if each.quantizer in data.draws[quantizer]]
    for mine, theirs in product(series, repeat=2):
        alike = (mine.seed, mine.quantizer) == (theirs.seed, theirs.quantizer)
        if alike and (mine.trajectory, theirs.trajectory) == (one, other):
            pairs[mine.seed].append((mine, theirs))
    return {
        (seed, step): found
        for seed, each in pairs.items()
        for step, found in difference(metric, each, data.inputs).items()
    }
