"""The forest plot: a row for each claim, with measured and published ratios."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ptq_dynamics.claims.definitions import FOREST, Judged
from ptq_dynamics.figures.labels import PICTURES
from ptq_dynamics.figures.style import SETTINGS, Look

# Limits of the axis; intervals may extend beyond.
LIMITS = (1 / 8, 8.0)
TICKS = (0.125, 0.25, 0.5, 1, 2, 4, 8)
# For each scale: marker, the same marker as a letter, and shade of grey.
MARKS = (("o", "●", "0.0"), ("s", "■", "0.45"), ("^", "▲", "0.65"))
NOTHING: Judged = {"outcome": "not measured", "rows": []}  # type: ignore[typeddict-item]


def forest(scales: Mapping[str, Sequence[Judged]]) -> Figure:
    """Draw the claims of each scale, as `claims.json` has them, by the scale's name."""
    first = list(next(iter(scales.values())))
    first.sort(key=lambda claim: claim["number"] or 99)
    by_name = [{claim["name"]: claim for claim in claims} for claims in scales.values()]
    rows = [[known.get(claim["name"], NOTHING) for known in by_name] for claim in first]
    mpl.rcdefaults()
    sns.set_theme(style="ticks", rc=SETTINGS)
    figure = Figure(figsize=(7.0, 0.26 * len(first) + 0.9), layout="constrained")
    axes = figure.add_subplot()
    for row, claims in enumerate(rows):
        _expected(axes, row, next((claim for claim in claims if claim["rows"]), first[row]))
        for number, ((marker, _, shade), claim) in enumerate(zip(MARKS, claims, strict=False)):
            place = row + 0.3 * (number - (len(scales) - 1) / 2)
            _measured(axes, place, claim, marker, shade)
    outcomes = [" · ".join(map(_outcome, claims)) for claims in rows]
    names = [f"{claim['number'] or '–'}  {claim['says']}" for claim in first]
    axes.axvline(1, color="0.3", linewidth=0.8)
    axes.set(xscale="log", xlim=LIMITS, ylim=(len(first) - 0.5, -0.5))
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.set_yticks(range(len(first)), names)
    axes.tick_params(axis="y", length=0)
    meaning = "◇: published; grey: as claimed; filled: resolved; ◀ ▶: beyond the axis"
    axes.set_xlabel(f"ratio ({meaning})")
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(first)), outcomes)
    right.tick_params(length=0)
    marked = [f"{name} ({letter})" for name, (_, letter, _) in zip(scales, MARKS, strict=False)]
    axes.set_title(f"Claims at {' and '.join(marked if len(scales) > 1 else scales)}", loc="left")
    return figure


def write(figure: Figure, folder: Path, name: str = FOREST) -> None:
    """Write a plot as PDF and PNG, without dates."""
    for kind in PICTURES:
        undated = {"CreationDate": None} if kind == "pdf" else {}
        figure.savefig(folder / f"{name}.{kind}", metadata=undated)


def _outcome(claim: Judged) -> str:
    return str(claim["outcome"]).replace("not measured", "–")


def _expected(axes: Axes, row: float, claim: Judged) -> None:
    ranges = {"above": (1, LIMITS[1]), "below": (LIMITS[0], 1)}
    expected = ranges.get(claim["expected"], (1 / claim["margin"], claim["margin"]))
    axes.fill_between(expected, row - 0.4, row + 0.4, color="0.93", linewidth=0)
    for measured in claim["rows"][:1]:
        look: Look = {"marker": "D", "color": "0.3", "fillstyle": "none", "markersize": 5}
        axes.plot(measured["published"] or np.nan, row, **look)


def _measured(axes: Axes, row: float, claim: Judged, marker: str, shade: str) -> None:
    first = next(iter(claim["rows"]), None)
    if claim["outcome"].startswith("not ") or first is None or "low" not in first:
        return
    ends = first["low"], first["value"], first.get("high", 2 * LIMITS[1])
    low, value, high = (max(end, LIMITS[0] / 2) for end in ends)
    axes.plot([low, high], [row, row], color=shade, linewidth=1.2, solid_capstyle="butt")
    face = shade if claim["outcome"] in ("agrees", "opposes") else "white"
    if not LIMITS[0] < value < LIMITS[1]:
        value, marker = (LIMITS[0] * 1.06, "<") if value < 1 else (LIMITS[1] / 1.06, ">")
    axes.plot(value, row, marker=marker, color=shade, markerfacecolor=face, markersize=4.5)
