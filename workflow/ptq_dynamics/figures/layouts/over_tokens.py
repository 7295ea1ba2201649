"""Metrics along runs against tokens."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from pydantic import model_validator

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.columns import OrColumn
from ptq_dynamics.figures.labels import call, in_group
from ptq_dynamics.figures.layout import Layout, Reads, Some
from ptq_dynamics.measure import names
from ptq_dynamics.train.settings import TRAINING

if TYPE_CHECKING:
    import pandas as pd

    from ptq_dynamics.figures.curves import Curves
    from ptq_dynamics.figures.panels import Picture, Sheet

PEAK = "last at the peak rate, mean"
# Labels of other horizontal axes than tokens.
AXES = {
    "share": "Share of the end's weights",
    "age": "Mean age (tokens)",
    "budget": "Budget (tokens)",
    "rank": "Rank",
}


class OverTokensOptions(Strict):
    """Options of `over_tokens`."""

    # Show losses in the panel of the full-precision loss, or beside it.
    quantized_losses: Literal["none", "within", "beside"] = "none"
    log: bool = False  # logarithmic vertical axes
    # Instead of tokens: the share of the way between two checkpoints; the mean age of averages,
    # where ends of other runs are levels; or the tokens of last checkpoints alone.
    x: Literal["tokens", "share", "age", "budget"] = "tokens"
    # Show branches in panels of their own, as means over those of a curve that are equally long.
    branches: bool = False
    # Describe the error in a note; panels above each other show what the note compares.
    words: bool = False


class OverTokens(Layout):
    """A panel for every metric, quantizer and group of curves, with a strip for the learning rate.
    Eigenvalues are those of the last checkpoint, by rank."""

    grouped = True
    layout: Literal["over_tokens"]
    metrics: Some[Annotated[Literal[names.OfRuns, "accuracy"], OrColumn()]]
    options: OverTokensOptions = OverTokensOptions()

    @model_validator(mode="after")
    def _fits_options(self) -> Self:
        x, losses = self.options.x, self.options.quantized_losses
        along = [str(metric) for metric in self.metrics if metric in TRAINING]
        along += [
            f"options.{name}" for name in ("branches", "words") if getattr(self.options, name)
        ]
        along += ["options.quantized_losses within"] * (losses == "within")
        if x != "tokens" and along:
            raise ValueError(f"options.x is {x!r}, but {along[0]} needs 'tokens'; drop one")
        if losses != "none" and names.LOSS not in self.metrics:
            raise ValueError(f"options.quantized_losses is {losses!r}: add loss to metrics")
        several = ["words"] * self.options.words + ["quantized_losses"] * (losses == "within")
        grouped = [label for label in self.curves if in_group(label)[0]]
        if several and grouped:
            why = f"options.{several[0]} shows no groups; drop one"
            raise ValueError(f"curves has {grouped[0]!r} of a group, but {why}")
        return self

    @property
    def reads(self) -> Reads:
        """Ages or lines of averages, and training curves for their metrics."""
        training = tuple(metric for metric in self.metrics if metric in TRAINING)
        x = self.options.x
        return Reads(ages=x == "age", lines=x == "share", of_runs=training)

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        data, options = sheet.data, self.options
        if options.words:
            data.called = call(data.quantizers.values(), with_method=True)
        wanted = list(data.wanted(quantized_losses=options.quantized_losses == "beside"))
        one = len({metric for metric, _ in wanted}) == 1
        groups, curves = data.groups, list[str]()
        for (metric, quantizer), group in product(wanted, groups):
            x = "rank" if metric == names.EIGENVALUES else options.x
            title, is_log = f"{group}\n{{}}".lstrip(), x in ("age", "budget")
            panel = data.run_panel(metric, quantizer, title)
            if x != "tokens":
                panel = data.panel(metric, quantizer, AXES[x], title)
                panel = replace(panel, tokens_x=is_log, log_x=is_log)
            # Panels of one metric and number of bits share a vertical scale.
            if len(groups) > 1 or (one and quantizer):
                bits = data.quantizers[quantizer].bits if quantizer else ""
                panel = replace(panel, alike=f"{metric} {bits}")
            levels = _levels(data, metric, quantizer) if quantizer and options.words else {}
            if metric == names.LOSS and options.quantized_losses == "within":
                points, panel = _all_losses(data), replace(panel, title="Loss")
                curves += [*points.curve.unique()]
            else:
                points = _points(data, metric, quantizer, x)
                points = points.assign(curve=points.curve.map(groups[group])).dropna(subset="curve")
                curves += [*data.labels, *levels] if levels else []
            # Short budgets have errors that are smaller by orders of magnitude.
            is_wide = x == "budget" and quantizer is not None and bool((points.y > 0).all())
            panel = replace(panel, log_y=panel.log_y or options.log or is_wide)
            runs = {run.name for run in data.settings.runs} - {*data.trunks}
            # What has no learning rate, such as an average of ends, belongs to the branches.
            is_run = points.segment.isin(runs) | (not options.branches)
            sheet.add(panel, points[is_run], *levels.values())
            if not is_run.all():
                panel = replace(panel, title=f"{panel.title}, stage 2")
                sheet.add(panel, data.over_branches(points[~is_run]))
        notes = [_described(data, name) for name in data.quantizers] if options.words else []
        columns = 1 if notes else len(groups) if len(groups) > 1 else None
        curves = [*dict.fromkeys(curves)]
        return sheet.publish(curves, columns, notes=notes, wide=bool(notes))


def _points(data: "Curves", metric: str, quantizer: str | None, x: str) -> "pd.DataFrame":
    """Return the points of a metric against a horizontal axis."""
    import pandas as pd

    key = [names.TRAJECTORY, names.CHECKPOINT_ID]
    if x == "rank":
        return _ranks(data)
    if x == "share":
        table = data.select(metric, quantizer)
        way = table.step / table.groupby(names.TRAJECTORY).step.transform("max")
        return data.along(table.assign(way=way), "way")
    if x == "age":
        ages = pd.DataFrame(data.settings.ages, columns=[*key, "age"])
        aged = data.along(data.select(metric, quantizer).merge(ages, on=key), "age")
        # Averages go from short intervals to long ones.
        aged = aged.assign(segment=aged.curve).sort_values(["curve", "x"], kind="stable")
        last = data.last_of(data.points(metric, quantizer)).assign(axis="level")
        levels = last[~last.segment.isin(ages.trajectory)]
        return pd.concat([aged, *(levels.assign(x=end) for end in ages.age.agg(["min", "max"]))])
    points = data.points(metric, quantizer)
    if x == "budget":
        points = data.last_of(points)
        return points.assign(segment=points.curve).sort_values(["curve", "x"])
    return points


def _all_losses(data: "Curves") -> "pd.DataFrame":
    """Return the points of losses in full precision, and of curves under quantizers."""
    import pandas as pd

    parts = [data.points(names.LOSS, None)]
    for name, called in data.called.items():
        points = data.points(names.LOSS, name)
        parts.append(points.assign(curve=points.curve + f" ({called})"))
    return pd.concat(parts)


def _levels(data: "Curves", metric: str, quantizer: str) -> dict[str, "pd.DataFrame"]:
    """Return by label the mean of each run's last checkpoints at the peak rate, up to its end."""
    import pandas as pd

    from ptq_dynamics.figures.verdict import BEFORE

    table, points = data.select(metric, quantizer), data.points(metric, quantizer)
    means, levels = {*table[table.phase == "average"].trajectory}, dict[str, pd.DataFrame]()
    runs = {label: run for label, (run, *_) in data.curves.items() if run not in means}
    for label, run in runs.items():
        stable = table[(table.trajectory == run) & (table.phase == "stable")]
        level = data.along(stable.sort_values(names.STEP).tail(BEFORE), data.x)
        if len(level):
            both = pd.concat([level, points[points.segment == run].tail(1)])
            curve = PEAK if len(runs) == 1 else f"{label} ({PEAK})"
            both = both.assign(curve=curve, axis="level", low=np.nan, high=np.nan)
            levels[curve] = both.assign(y=level.y.mean())
    return levels


def _ranks(data: "Curves") -> "pd.DataFrame":
    """Return magnitudes of eigenvalues against rank, at last checkpoints: the mean of the runs of a
    curve, with their standard deviation if there are several."""
    import pandas as pd

    from ptq_dynamics.figures.curves import over_runs, over_seeds

    parts = []
    ranked = sorted(name for name in {*data.table.metric} if name.startswith(names.EIGENVALUE))
    for rank, name in enumerate(ranked, start=1):
        rows = data.rows(name, None)
        rows = over_seeds(rows.assign(value=rows.value.abs(), rank=rank), names.CHECKPOINT_ID)
        parts.append(data.last_of(data.along(rows, "rank")))
    points = pd.concat(parts)
    return over_runs(points.assign(segment=points.curve), "curve", "x", spread=True)


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
        # An average before all runs has nothing to be compared with.
        if name not in means or not runs:
            mine = rows[rows.trajectory == data.curves[label][0]]
            placed = mine[mine.step.notna() & (mine.phase != "warmup")]
            mine, ended = placed if len(placed) else mine.tail(1), end
            value, noise = (100 * mine[c].to_numpy(float) for c in (names.VALUE, names.ERROR))
            errors = Errors(mine.phase.to_numpy(), mine.step.to_numpy(), value, noise)
            who = called if is_one and name not in means else f"{label}, {called}"
            words += [errors.verdict(who) + _drawn_again(data, mine, shown.draws[1:])]
            words += [f"The {'average' if name in means else 'run'} ends with {level}"]
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
