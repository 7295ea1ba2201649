"""What errors and losses along a run say, in words. The first curve of the figure is a run; others
are averages of its checkpoints."""

from math import exp, hypot
from typing import Any

from ptq_dynamics.measure import names

# Checkpoints before the decay whose mean the end is compared with.
BEFORE = 3
COVERS = 1.96  # standard errors that an interval of 95 % reaches


def said(data: Any, quantizer: str) -> str:
    """The error before and after the decay, and the loss of averages, under a quantizer."""
    called, run = data.called[quantizer], data.labels[0]
    rows = data.rows(names.QUANTIZATION_ERROR, quantizer)
    rows = rows[rows.trajectory == data.curves[run][0]].sort_values(names.STEP)
    stable = rows[rows.phase == "stable"].tail(BEFORE)
    before, end = (stable if len(stable) else rows.head(1)), rows.tail(1)
    said = f"{called}: the error is {_percent(end)} at the last checkpoint"
    if len(rows) > 1:
        when = f"over the last {len(stable)} at the peak rate" if len(stable) else "at the first"
        level, error, last = before.value.mean(), _error(before), float(end.value.iloc[0])
        said = f"{called}: the error is {_percent(before)} {when}, and {_percent(end)} at the end"
        # A ratio to what may be nothing says nothing.
        if level > 2 * error and last > 0:
            ratio, spread = last / level, hypot(error / level, _error(end) / last)
            low, high = ratio * exp(-COVERS * spread), ratio * exp(COVERS * spread)
            said += f", {ratio:.2f} times as large [{low:.2f}, {high:.2f}]"
        later = rows[rows.step > before.step.max()]
        is_above = (later.value > level + 2 * error)[::-1].cummin()[::-1]
        if is_above.any():
            said += f". From step {later.step[is_above].min():,} on it stays above the first value"
    losses = data.rows(names.LOSS, quantizer).sort_values(names.STEP).groupby(names.TRAJECTORY)
    last = losses.value.last()
    every = {label: last[members[-1]] for label, members in data.curves.items()}
    if len(every) > 1:
        listed = ", ".join(f"{label} {loss:.4f}" for label, loss in every.items())
        best = min(every, key=every.__getitem__)
        said += f". The lowest {called} loss at the end is that of the {best} ({listed} nats/token)"
    return f"{said}."


def _error(rows: Any) -> float:
    return float((rows.stderr**2).sum() ** 0.5 / len(rows))


def _percent(rows: Any) -> str:
    return f"{100 * float(rows.value.mean()):#.3g} ± {100 * _error(rows):.1g} %"
