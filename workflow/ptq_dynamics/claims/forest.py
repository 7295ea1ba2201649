"""The forest plot: a row for each claim and scale that tested it, with measured and published
ratios."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ptq_dynamics.claims.beyond import BEYOND
from ptq_dynamics.claims.controlled import CONTROLLED
from ptq_dynamics.claims.definitions import FOREST, Judged
from ptq_dynamics.claims.public import PUBLIC
from ptq_dynamics.figures.labels import PICTURES
from ptq_dynamics.figures.style import set_style

GROUPS = {"The paper's own runs": CONTROLLED, "Public models": PUBLIC, "Beyond the paper": BEYOND}
# Limits and ticks of the axis; intervals may be longer. Logarithms below `NEAR` have more room.
LOW, HIGH, NEAR = 1 / 8, 8.0, 0.1
TICKS = (0.125, 0.5, 0.8, 1, 1.25, 2, 8)
# Marker and colour of a ratio by the outcome of its claim.
MARKS = {"agrees": ("o", "#0077BB"), "opposes": ("s", "#CC3311"), "unresolved": ("o", "0.4")}
# Inches of the figure, whose texts are readable at 85 mm, and of a row; letters of a line.
WIDTH, ROW, LETTERS = 4.35, 0.155, 78
AT = "at "  # before the scale of a row

Known = Mapping[str, Mapping[str, Judged]]  # claims by scale and name


def forest(scales: Mapping[str, Sequence[Judged]]) -> Figure:
    """Draw the claims of each scale, as `claims.json` has them, by the scale's name. A line below
    names the claims that no scale tested."""
    set_style()
    known = {scale: {claim["name"]: claim for claim in claims} for scale, claims in scales.items()}
    rows, notes = [*_rows(known)], _notes(known)
    height = ROW * (len(rows) + 6 + notes.count("\n"))
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    ax = figure.subplots()
    ax.set_xscale(
        "function",
        functions=(
            lambda ratio: np.arcsinh(np.log(np.maximum(ratio, LOW / 2)) / NEAR),
            lambda share: np.exp(NEAR * np.sinh(share)),
        ),
    )
    ax.set(xlim=(LOW, HIGH), ylim=(len(rows) - 0.3, -0.7))
    ax.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    ax.set_xlabel("Ratio of the claim (1: no effect), with more room near 1")
    ax.set_yticks(range(len(rows)), [name for name, _ in rows])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.axvline(1, color="0.3", linewidth=0.8)
    sns.despine(figure, left=True)
    for place, (label, (_, judged)) in enumerate(zip(ax.get_yticklabels(), rows, strict=True)):
        if judged is None:
            label.set_fontweight("bold")
        else:
            label.set_color("0.45" if label.get_text().startswith(AT) else "black")
            _draw(ax, place, judged)
    figure.legend(
        handles=_legend(), loc="outside upper center", ncols=5, columnspacing=1, handletextpad=0.4
    )
    figure.supxlabel(notes, x=0.01, ha="left", fontsize=6.5, color="0.3")
    return figure


def save_plot(figure: Figure, folder: Path, name: str = FOREST) -> None:
    """Write a plot as PDF and PNG, without dates."""
    for kind in PICTURES:
        undated = {"CreationDate": None} if kind == "pdf" else {}
        figure.savefig(folder / f"{name}.{kind}", metadata=undated)


def _rows(known: Known) -> Iterator[tuple[str, Judged | None]]:
    """Yield the name of each row with its claim, or with None for the heading of a group."""
    for title, group in GROUPS.items():
        for claim in sorted(group, key=lambda claim: claim.number or 99):
            name = claim.short + f"  {claim.number}" * bool(claim.number)
            names = {scale: f"{name}, {scale}" for scale in known} | {next(iter(known)): name}
            for scale, claims in known.items():
                if (judged := claims.get(claim.name)) and judged["outcome"] in MARKS:
                    if title:
                        yield title + ", as miniatures" * bool(judged["about"]), None
                    title = ""
                    yield names[scale], judged
                    names = {scale: AT + scale for scale in known}


def _notes(known: Known) -> str:
    """Return lines that name the claims that no scale tested."""
    names = dict[str, list[str]]()
    for claim in (*CONTROLLED, *PUBLIC, *BEYOND):
        outcomes = [of[claim.name]["outcome"] for of in known.values() if claim.name in of]
        if outcomes and not {*outcomes} & {*MARKS}:
            name = f"{claim.short} ({claim.number})" if claim.number else claim.short
            names.setdefault(outcomes[0], []).append(name)
    lines = [next(iter(known)).capitalize() + ", except where rows name another" * (len(known) > 1)]
    lines += [f"{outcome.capitalize()}: {', '.join(of)}" for outcome, of in names.items()]
    return "\n".join(fill(f"{line}.", LETTERS) for line in lines)


def _draw(ax: Axes, row: int, claim: Judged) -> None:
    """Draw the ratio of a claim, its published value and the claimed side; right, the outcome."""
    marker, color = MARKS[claim["outcome"]]
    right = ax.get_yaxis_transform()
    ax.text(1.04, row, claim["outcome"], transform=right, color=color, va="center", size=6.5)
    first = claim["rows"][0]
    sides = {"above": (1, HIGH), "below": (LOW, 1)}
    side = sides.get(claim["expected"], (1 / claim["margin"], claim["margin"]))
    ax.fill_between(side, row - 0.42, row + 0.42, color="0.92", linewidth=0)
    if published := first["published"]:
        ax.vlines(published, row - 0.42, row + 0.42, color="black", linewidth=1.4)
    if "decides" in claim:
        ax.hlines(row, *np.clip(claim["decides"], LOW / 2, 2 * HIGH), color=color, linewidth=1.4)
    value = first["value"]
    if not LOW < value < HIGH:
        value, marker = (LOW * 1.07, "<") if value < 1 else (HIGH / 1.07, ">")
    (point,) = ax.plot(value, row, marker, color=color, clip_on=False, zorder=4, markersize=4.5)
    if claim["outcome"] == "unresolved":
        point.set_markerfacecolor("white")


def _legend() -> list[Line2D | Patch]:
    drawn = [
        Line2D([], [], color=color, marker=marker, markersize=4.5, label=outcome)
        for outcome, (marker, color) in MARKS.items()
    ]
    drawn[-1].set_markerfacecolor("white")
    published = Line2D([], [], color="black", marker="|", markersize=8, markeredgewidth=1.4)
    published.set(linestyle="none", label="published")
    return [*drawn, published, Patch(color="0.92", label="claimed side")]
