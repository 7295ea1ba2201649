"""Describe errors and losses of a run (the first curve) and of its averages (the others)."""

from math import exp, hypot
from typing import Any

from ptq_dynamics.measure import names

BEFORE = 3  # checkpoints before the decay whose mean is compared with the end
COVERS = 1.96  # standard errors in half an interval of 95 %


def said(data: Any, quantizer: str) -> str:
    """Describe errors before and after the decay, and errors and losses of averages."""
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
