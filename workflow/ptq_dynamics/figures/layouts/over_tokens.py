"""Metrics along runs against tokens."""

from typing import Any, Literal

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures import words
from ptq_dynamics.figures.layout import Layout, Some
from ptq_dynamics.measure import names
from ptq_dynamics.measure.names import EIGENVALUES, LOSS, OfRuns
from ptq_dynamics.train.settings import TRAINING

WAY = "Share of the end's weights"
WIDEST, NARROWEST = 3.2, 0.8  # widths in points of lines that may overlap


class OverTokensOptions(Strict):
    """Options of `over_tokens`."""

    # Show losses in the panel of the full-precision loss, or beside it.
    quantized_losses: Literal["none", "within", "beside"] = "none"
    means: bool = False  # emphasize ends, and the means of trunks between branches
    log: bool = False  # logarithmic vertical axes
    share: bool = False  # the share of the way between two checkpoints instead of tokens
    words: bool = False  # describe the error in a note


class OverTokens(Layout):
    """A panel for every metric and quantizer, with the learning rate as a dotted line.
    Eigenvalues are those of the last checkpoint, by rank."""

    layout: Literal["over_tokens"]
    metrics: Some[Literal[OfRuns, "accuracy"]]
    options: OverTokensOptions = OverTokensOptions()

    def check(self, place: str, timeline: Any) -> None:
        """Raise `Problem` for averages, which have no training curve."""
        for metric in self.metrics:
            if metric in TRAINING:
                self.no_averages(f"{place}.metrics", timeline, metric)

    def draw(self, sheet: Any) -> Any:
        """Draw the figure."""
        data, options = sheet.data, self.options
        wanted = list(data.wanted(quantized_losses=options.quantized_losses == "beside"))
        one = len({metric for metric, _ in wanted}) == 1
        labels, form = data.labels, dict[str, Any](log_y=True) if options.log else {}
        for metric, quantizer in wanted:
            # Panels of one metric and number of bits share a vertical scale.
            if one and quantizer:
                form["alike"] = f"{metric} {data.quantizers[quantizer].bits}"
            if metric == EIGENVALUES:
                sheet.add(data.panel(metric, quantizer, "Rank", **form), _ranks(data))
            elif options.share:
                table = data.select(metric, quantizer)
                way = table.step / table.groupby(names.TRAJECTORY).step.transform("max")
                points = data.along(table.assign(way=way), "way")
                sheet.add(data.panel(metric, quantizer, WAY, **form), points)
            elif metric == LOSS and options.quantized_losses == "within":
                widths, parts = _all_losses(data)
                labels = [*widths]
                panel = data.over_tokens(metric, quantizer, title="Loss", widths=widths, **form)
                sheet.add(panel, *parts)
            else:
                parts, means = [data.points(metric, quantizer)], bool(quantizer and options.means)
                parts += [data.phase_means(metric, quantizer)] if means else []
                sheet.add(data.over_tokens(metric, quantizer, faint=means, **form), *parts)
        said = [words.said(data, each) for each in data.quantizers] if options.words else []
        return sheet.publish(labels, said=said)


def _all_losses(data: Any) -> tuple[dict[str, float], list[Any]]:
    """Return line widths by curve and points of losses in full precision and under quantizers.
    Lines with fewer bits are narrower, because losses may differ by less than a line width."""
    widths, parts = dict.fromkeys(data.labels, WIDEST), [data.points(LOSS, None)]
    ordered = sorted(data.quantizers.values(), key=lambda shown: -shown.bits)
    for number, shown in enumerate(ordered, start=1):
        under = {label: f"{label} ({data.called[shown.name]})" for label in data.labels}
        points = data.points(LOSS, shown.name)
        parts.append(points.assign(curve=points.curve.map(under)))
        width = WIDEST + (NARROWEST - WIDEST) * number / len(ordered)
        widths |= dict.fromkeys(under.values(), width)
    return widths, parts


def _ranks(data: Any) -> Any:
    """Return magnitudes of eigenvalues against rank, at every trajectory's last checkpoint."""
    import pandas as pd

    from ptq_dynamics.figures.curves import over_seeds

    parts = []
    ranked = sorted(name for name in {*data.table.metric} if name.startswith(names.EIGENVALUE))
    for rank, name in enumerate(ranked, start=1):
        rows = data.rows(name, None)
        rows = over_seeds(rows.assign(value=rows.value.abs(), rank=rank), names.CHECKPOINT)
        parts.append(data.last_of(data.along(rows, "rank")))
    return pd.concat(parts).sort_values(["curve", "segment", "x"], kind="stable")
