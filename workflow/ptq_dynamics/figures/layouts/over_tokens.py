"""Metrics along runs against tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.columns import OrColumn
from ptq_dynamics.figures.labels import Form, call
from ptq_dynamics.figures.layout import Layout, Reads, Some
from ptq_dynamics.measure import names
from ptq_dynamics.train.settings import TRAINING

if TYPE_CHECKING:
    import pandas as pd

    from ptq_dynamics.figures.curves import Curves
    from ptq_dynamics.figures.panels import Picture, Sheet

WAY = "Share of the end's weights"
PEAK = "last at the peak rate, mean"
WIDEST, NARROWEST = 2.2, 0.6  # widths in points of lines that may overlap


class OverTokensOptions(Strict):
    """Options of `over_tokens`."""

    # Show losses in the panel of the full-precision loss, or beside it.
    quantized_losses: Literal["none", "within", "beside"] = "none"
    log: bool = False  # logarithmic vertical axes
    share: bool = False  # the share of the way between two checkpoints instead of tokens
    branches: bool = False  # show branches in panels of their own
    # Describe the error in a note; panels above each other show what the note compares.
    words: bool = False


class OverTokens(Layout):
    """A panel for every metric and quantizer, with a strip for the learning rate.
    Eigenvalues are those of the last checkpoint, by rank."""

    layout: Literal["over_tokens"]
    metrics: Some[Annotated[Literal[names.OfRuns, "accuracy"], OrColumn()]]
    options: OverTokensOptions = OverTokensOptions()

    @property
    def reads(self) -> Reads:
        """Training curves, for their metrics."""
        return Reads(of_runs=tuple(metric for metric in self.metrics if metric in TRAINING))

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        data, options = sheet.data, self.options
        if options.words:
            data.called = call(data.quantizers.values(), with_method=True)
        wanted = list(data.wanted(quantized_losses=options.quantized_losses == "beside"))
        one = len({metric for metric, _ in wanted}) == 1
        labels, form = data.labels, Form(log_y=True) if options.log else Form()
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
                own: Form = {**form, "widths": widths}
                sheet.add(data.run_panel(metric, quantizer, "Loss", **own), *parts)
            else:
                points = data.points(metric, quantizer)
                apart = points.segment.isin(data.trunks) if options.branches else points.x.isna()
                # What has no learning rate, such as an average of ends, belongs to the branches.
                if options.branches:
                    apart |= ~points.segment.isin({*data.learning_rates().segment})
                parts = [points[~apart]]
                if quantizer and options.words and len(level := _level(data, metric, quantizer)):
                    parts, labels = [*parts, level], [*data.labels, PEAK]
                sheet.add(data.run_panel(metric, quantizer, **form), *parts)
                if apart.any():
                    title = "{}, stage 2"
                    sheet.add(data.run_panel(metric, quantizer, title, **form), points[apart])
        notes = [_described(data, name) for name in data.quantizers] if options.words else []
        return sheet.publish(labels, 1 if notes else None, notes=notes, wide=bool(notes))


def _all_losses(data: "Curves") -> tuple[dict[str, float], list["pd.DataFrame"]]:
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


def _level(data: "Curves", metric: str, quantizer: str) -> "pd.DataFrame":
    """Return the mean of the first curve's last checkpoints at the peak rate, up to its end."""
    import pandas as pd

    from ptq_dynamics.figures.verdict import BEFORE

    run, table = data.curves[data.labels[0]][0], data.select(metric, quantizer)
    stable = table[(table.trajectory == run) & (table.phase == "stable")].sort_values(names.STEP)
    level, points = data.along(stable.tail(BEFORE), data.x), data.points(metric, quantizer)
    both = pd.concat([level, points[points.segment == run].tail(1)]) if len(level) else level
    return both.assign(curve=PEAK, axis="level", y=level.y.mean(), low=np.nan, high=np.nan)


def _ranks(data: "Curves") -> "pd.DataFrame":
    """Return magnitudes of eigenvalues against rank, at last checkpoints: the mean of the runs of a
    curve, with their standard deviation if there are several."""
    import pandas as pd

    from ptq_dynamics.figures.curves import over_seeds

    parts = []
    ranked = sorted(name for name in {*data.table.metric} if name.startswith(names.EIGENVALUE))
    for rank, name in enumerate(ranked, start=1):
        rows = data.rows(name, None)
        rows = over_seeds(rows.assign(value=rows.value.abs(), rank=rank), names.CHECKPOINT_ID)
        parts.append(data.last_of(data.along(rows, "rank")))
    points = pd.concat(parts)
    runs = points.groupby(["curve", "x"], sort=False)
    spread, mean = runs.y.transform("std").fillna(points.high - points.y), runs.y.transform("mean")
    points = points.assign(trajectory=runs.trajectory.transform(" ".join), segment=points.curve)
    points = points.assign(y=mean, low=mean - spread, high=mean + spread)
    return points.drop_duplicates(["curve", "x"])


def _described(data: "Curves", quantizer: str) -> str:
    """Describe errors of runs before and after decay, each followed by its averages; and how the
    ends of other runs differ from that of the first."""
    from ptq_dynamics.figures.verdict import Errors, apart, difference
    from ptq_dynamics.measure.measurements import contributions, mean_and_error

    called, shown = data.called[quantizer], data.quantizers[quantizer]
    used = shown.draws[0]
    own = data.table[data.table.quantizer == used].sort_values(names.STEP, na_position="first")
    rows, losses = (own[own.metric == metric] for metric in (names.QUANTIZATION_ERROR, names.LOSS))
    series = {one.trajectory: one for one in data.settings.series if one.quantizer == used}
    last = {label: members[-1] for label, members in data.curves.items()}
    means = {*rows[rows.phase == "average"].trajectory}
    is_one = sum(name not in means for name in last.values()) == 1
    words, runs = list[str](), dict[str, Errors]()
    for label, name in last.items():
        of, loss = (t[t.trajectory == name].iloc[-1] for t in (rows, losses))
        end = contributions(names.LOSS, series[name], data.inputs)[loss.checkpoint_id]
        level = f"a quantized loss of {loss.value:.4f} nats/token"
        if name not in means:
            mine = rows[rows.trajectory == data.curves[label][0]]
            placed = mine[mine.step.notna() & (mine.phase != "warmup")]
            mine, ended = placed if len(placed) else mine.tail(1), end
            value, noise = (100 * mine[c].to_numpy(float) for c in (names.VALUE, names.ERROR))
            errors = Errors(mine.phase.to_numpy(), mine.step.to_numpy(), value, noise)
            who = called if is_one else f"{label}, {called}"
            words += [errors.verdict(who) + _drawn_again(data, mine, shown.draws[1:])]
            words += [f"The run ends with {level}"]
            words += [apart(errors, label, *first) for first in [*runs.items()][:1]]
            runs[label] = errors
            continue
        gap = difference(100 * of.value - errors.values[-1], errors.half(2))
        lower, error = mean_and_error(end - ended)
        off = difference(lower, 2 * error, "", ".4f")
        text = f"The {label} has an error of {100 * of.value:.3g} % ({gap} from the end)"
        words.append(f"{text} and {level} ({off} from the end)")
    return f"{'. '.join(words)}."


def _drawn_again(data: "Curves", rows: "pd.DataFrame", draws: Sequence[str]) -> str:
    """Return the errors of a lone checkpoint with other calibration sets, if there are any."""
    if len(rows) > 1:
        return ""
    key = [names.METRIC, names.TRAJECTORY, names.CHECKPOINT_ID]
    other = data.table[data.table.quantizer.isin(draws)].merge(rows[key], on=key)
    return "".join(f"; with another calibration set it is {100 * v:.3g} %" for v in other.value)
