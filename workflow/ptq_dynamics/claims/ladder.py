"""Numbers of claims over scales, beside the published ones and predictions for a larger scale."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import exp, hypot, log
from textwrap import fill
from typing import NamedTuple

from matplotlib.figure import Figure

from ptq_dynamics.claims.definitions import Judged, Ladder
from ptq_dynamics.claims.formats import Cell, Number, Table
from ptq_dynamics.figures.labels import rounded
from ptq_dynamics.figures.style import GUIDE, TEXT, set_style

LADDER = "ladder"  # name of the plot and the table, without suffix
MARKS = {  # markers, colours and words
    "measured": ("o", "black", "measured, 95 % interval"),
    "predicted": ("s", "0.5", "predicted: line through two smaller scales"),
    "published": ("D", "0.3", "published"),
}
COLUMNS, ROW, LETTERS = 2, 1.5, 34  # inches of a row, and letters of a line of a title


class ScalePoint(NamedTuple):
    """A number at a scale, with its interval if it is known."""

    label: str
    unit: str
    scale: str
    parameters: float
    kind: str
    value: float
    low: float | None = None
    high: float | None = None


def points(
    ladder: Ladder, sizes: Mapping[str, int], scales: Mapping[str, Sequence[Judged]]
) -> Iterator[ScalePoint]:
    """Yield every number of the ladder. `sizes` are the parameters of scales by name."""
    for rung in ladder.numbers:
        measured, published = dict[str, ScalePoint](), dict[float, ScalePoint]()
        for scale, claims in scales.items():
            rows = chain.from_iterable(e["rows"] for e in claims if e["name"] == rung.claim)
            for row in (row for row in rows if row["says"] == rung.number):
                about = rung.label, row["unit"]
                if "value" in row:
                    point = ScalePoint(*about, scale, sizes[scale], "measured", row["value"])
                    measured[scale] = point._replace(low=row.get("low"), high=row.get("high"))
                if (value := row["published"]) is not None:
                    size = sizes[ladder.published_at]
                    published[value] = ScalePoint(*about, "paper", size, "published", value)
        yield from measured.values()
        for scale, (smaller, larger) in ladder.predictions.items():
            if {smaller, larger} <= {*measured}:
                yield extrapolated(measured[smaller], measured[larger], scale, sizes[scale])
        yield from published.values()


def extrapolated(
    first: ScalePoint, second: ScalePoint, scale: str, parameters: float
) -> ScalePoint:
    """Return what the straight line through two scales, in log(parameters), is at another one.
    Ratios and percentages count by their logarithms."""
    is_log = first.unit in ("", "%") and min(first.value, second.value) > 0
    forth, back = (log, exp) if is_log else (float, float)
    part = log(parameters / first.parameters) / log(second.parameters / first.parameters)
    value = forth(first.value) + part * (forth(second.value) - forth(first.value))
    point = ScalePoint(*first[:2], scale, parameters, "predicted", back(value))
    ends = [end for one in (first, second) for end in (one.low, one.high) if end is not None]
    if len(ends) < 4 or (is_log and min(ends) <= 0):
        return point
    low, high, low_second, high_second = map(forth, ends)
    half = hypot((1 - part) * (high - low), part * (high_second - low_second)) / 2
    return point._replace(low=back(value - half), high=back(value + half))


def ladder_table(numbers: Sequence[ScalePoint]) -> Table:
    """Return all numbers as a table."""
    heads = ("Number", "Unit", "Scale", "Parameters", "Kind", "Value", "From", "To")
    rows = list[list[Cell]]()
    for p in numbers:
        rows.append([p.label, p.unit or "ratio", p.scale, int(p.parameters), p.kind])
        rows[-1] += [None if n is None else Number(n) for n in (p.value, p.low, p.high)]
    return Table("Numbers over scales, published ones and predictions", heads, rows)


def plot(numbers: Sequence[ScalePoint], ladder: Ladder) -> Figure:
    """Draw a panel for each number over the parameters."""
    shown = {point.label for point in numbers}
    rungs = [rung for rung in ladder.numbers if rung.label in shown]
    sizes = {point.parameters: point.scale for point in numbers}
    set_style()
    rows = -(-len(rungs) // COLUMNS)
    figure = Figure(figsize=(TEXT, ROW * rows + 0.8), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True).flat
    for rung, axes in zip(rungs, panels, strict=False):
        of_rung = [point for point in numbers if point.label == rung.label]
        for point in of_rung:
            if point.kind == "predicted":
                smaller = ladder.predictions[point.scale]
                line = [p for p in of_rung if p.kind == "measured" and p.scale in smaller] + [point]
                (drawn,) = axes.plot([p.parameters for p in line], [p.value for p in line])
                drawn.set(**GUIDE)
            marker, color, words = MARKS[point.kind]
            (drawn,) = axes.plot(point.parameters, point.value, marker, color=color, label=words)
            face = color if point.kind == "measured" else "white"
            drawn.set(markersize=4, markerfacecolor=face, zorder=3)
            if point.low is not None and point.high is not None:
                axes.vlines(point.parameters, point.low, point.high, color=color, linewidth=1.2)
        unit = of_rung[0].unit
        if unit in ("", "nats"):
            axes.axhline(1 if unit == "" else 0, color="0.7", linewidth=0.8)
        axes.set(xscale="log", ylabel=unit or "ratio")
        axes.set_title(fill(rung.title, LETTERS), loc="left")
        axes.set_xticks([*sizes], [f"{name}, {rounded(size)}" for size, name in sizes.items()])
        axes.minorticks_off()
        axes.tick_params(axis="x", rotation=90)
    for axes in [*figure.axes][len(rungs) :]:
        axes.remove()
    figure.supxlabel("Scale and its parameters (logarithmic)", fontsize=7)
    handles = dict(zip(*figure.axes[0].get_legend_handles_labels()[::-1], strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=2)
    return figure
