"""Metrics along runs against tokens."""

from math import exp, hypot
from typing import Any, Literal

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.layout import Layout, Reads, Some
from ptq_dynamics.measure import names
from ptq_dynamics.train.settings import TRAINING

WAY = "Share of the end's weights"
WIDEST, NARROWEST = 3.2, 0.8  # widths in points of lines that may overlap
BEFORE = 3  # checkpoints before the decay whose mean is compared with the end
COVERS = 1.96  # standard errors in half an interval of 95 %


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
    metrics: Some[Literal[names.OfRuns, "accuracy"]]
    options: OverTokensOptions = OverTokensOptions()

    @property
    def reads(self) -> Reads:
        """Training curves, for their metrics."""
        return Reads(of_runs=tuple(metric for metric in self.metrics if metric in TRAINING))

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
            if metric == names.EIGENVALUES:
                sheet.add(data.panel(metric, quantizer, "Rank", **form), _ranks(data))
            elif options.share:
                table = data.select(metric, quantizer)
                way = table.step / table.groupby(names.TRAJECTORY).step.transform("max")
                points = data.along(table.assign(way=way), "way")
                sheet.add(data.panel(metric, quantizer, WAY, **form), points)
            elif metric == names.LOSS and options.quantized_losses == "within":
                widths, parts = _all_losses(data)
                labels = [*widths]
                panel = data.over_tokens(metric, quantizer, title="Loss", widths=widths, **form)
                sheet.add(panel, *parts)
            else:
                parts, means = [data.points(metric, quantizer)], bool(quantizer and options.means)
                parts += [data.phase_means(metric, quantizer)] if means else []
                sheet.add(data.over_tokens(metric, quantizer, faint=means, **form), *parts)
        said = [_described(data, each) for each in data.quantizers] if options.words else []
        return sheet.publish(labels, said=said)


def _all_losses(data: Any) -> tuple[dict[str, float], list[Any]]:
    """Return line widths by curve and points of losses in full precision and under quantizers.
    Lines with fewer bits are narrower, because losses may differ by less than a line width."""
    widths, parts = dict.fromkeys(data.labels, WIDEST), [data.points(names.LOSS, None)]
    ordered = sorted(data.quantizers.values(), key=lambda shown: -shown.bits)
    for number, shown in enumerate(ordered, start=1):
        under = {label: f"{label} ({data.called[shown.name]})" for label in data.labels}
        points = data.points(names.LOSS, shown.name)
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


def _described(data: Any, quantizer: str) -> str:
    """Describe errors of the first curve, a run, before and after decay; and its averages."""
    called, run = data.called[quantizer], data.labels[0]
    own = data.table[data.table.quantizer == data.draws[quantizer][0]].sort_values(names.STEP)
    rows, losses = (own[own.metric == each] for each in (names.QUANTIZATION_ERROR, names.LOSS))
    mine = rows[rows.trajectory == data.curves[run][0]]
    stable = mine[mine.phase == "stable"].tail(BEFORE)
    before = stable if len(stable) else mine.head(1)
    # Errors scatter between checkpoints more than between blocks of text.
    noise = float(before.value.std()) if len(before) > 1 else 0.0
    level, last = float(before.value.mean()), float(mine.value.iloc[-1])
    error = hypot(float((before.stderr**2).sum() ** 0.5), noise * len(before) ** 0.5) / len(before)
    final = hypot(float(mine.stderr.iloc[-1]), noise)
    said = f"{called}: the error is {_percent(last, final)} at the end"
    if len(mine) > 1:
        when = f"over the last {len(stable)} at the peak rate" if len(stable) else "at first"
        when += " before the first decay" if len(stable) and "restart" in {*mine.phase} else ""
        said = f"{called}: the error is {_percent(level, error)} {when}"
        said += f", and {_percent(last, final)} at the end"
        # A ratio to a level near zero has no meaning.
        if level > 2 * error and last > 0:
            ratio, spread = last / level, hypot(error / level, final / last)
            low, high = ratio * exp(-COVERS * spread), ratio * exp(COVERS * spread)
            said += f", {ratio:.2f} times as large [{low:.2f}, {high:.2f}]"
        later = mine[mine.step > before.step.max()]
        is_above = (later.value > level + 2 * hypot(error, noise))[::-1].cummin()[::-1]
        if is_above.any():
            said += f". From step {later.step[is_above].min():,} on it is higher"
    for label, members in data.curves.items():
        of, loss = (t[t.trajectory == members[-1]].value.iloc[-1] for t in (rows, losses))
        what = "The run ends with" if label == run else f"The {label} has"
        said += f". {what} an error of {100 * of:.2g} %"
        said += f" and a {called} loss of {loss:.4f} nats/token"
    return f"{said}."


def _percent(value: float, error: float) -> str:
    return f"{100 * value:.2g} ± {100 * error:.1g} %"
