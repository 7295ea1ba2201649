"""The forest plot: a row for each claim, with measured and published ratios."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
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
from ptq_dynamics.figures.style import SETTINGS, Look

GROUPS = {"The paper's own runs": CONTROLLED, "Public models": PUBLIC, "Beyond the paper": BEYOND}
# Limits and ticks of the axis of all effects, and of that of small ones; intervals may be longer.
AXES = (((1 / 8, 8.0), (0.125, 0.5, 1, 2, 8)), ((0.8, 1.25), (0.8, 1, 1.25)))
# Marker and colour of a ratio by the outcome of its claim.
MARKS = {"agrees": ("o", "#0077BB"), "opposes": ("s", "#CC3311"), "unresolved": ("o", "0.4")}
NAMES = 132.0  # points that names take
FIGURE_SPACE, DASH = "\u2007", "\u2012"  # both as wide as a digit
NOTHING: Judged = {"outcome": "not measured", "rows": []}  # type: ignore[typeddict-item]


def forest(scales: Mapping[str, Sequence[Judged]]) -> Figure:
    """Draw the claims of each scale, as `claims.json` has them, by the scale's name."""
    known = [{claim["name"]: claim for claim in claims} for claims in scales.values()]
    groups = {
        title: sorted((c for c in group if c.name in known[0]), key=lambda c: c.number or 99)
        for title, group in GROUPS.items()
        if any(claim.name in known[0] for claim in group)
    }
    counts, count = [len(group) for group in groups.values()], len(scales)
    mpl.rcdefaults()
    sns.set_theme(style="ticks", rc=SETTINGS)
    height = 0.165 * sum(counts) + 0.25 * len(counts) + 0.8
    figure = Figure(figsize=(2.5 + 2.25 * count, height))
    figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.01, wspace=0.01)
    panels = figure.subplots(
        len(groups),
        2 * count,
        squeeze=False,
        sharex="col",
        sharey="row",
        gridspec_kw={"height_ratios": counts, "width_ratios": [1.2, 1] * count},
    )
    for axes, (title, group) in zip(panels, groups.items(), strict=True):
        names = [f"{claim.number or DASH:{FIGURE_SPACE}>2}  {claim.short}" for claim in group]
        axes[0].set_yticks(range(len(group)), names, ha="left")
        axes[0].set_ylim(len(group) - 0.5, -0.5)
        axes[0].tick_params(axis="y", pad=NAMES)
        if any(known[0][claim.name]["about"] for claim in group):
            title += ", as miniatures"
        axes[0].annotate(
            title,
            (0, 1),
            xycoords="axes fraction",
            xytext=(-NAMES, 3),
            textcoords="offset points",
            weight="bold",
        )
        for place, ax in enumerate(axes):
            limits, ticks = AXES[place % 2]
            ax.set(xscale="log", xlim=limits)
            ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            ax.minorticks_off()
            ax.tick_params(axis="y", length=0)
            ax.grid(visible=False, axis="y")
            ax.axvline(1, color="0.3", linewidth=0.8)
            for row, claim in enumerate(group):
                judged = known[place // 2].get(claim.name, NOTHING)
                _draw(ax, row, judged, limits, is_enlarged=bool(place % 2))
    for place, name in enumerate(scales):
        panels[0][2 * place].set_title(name.capitalize(), loc="left", weight="bold", pad=12)
        panels[-1][2 * place].set_xlabel("ratio")
        panels[-1][2 * place + 1].set_xlabel("ratio, enlarged")
    sns.despine(figure, left=True)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=5)
    return figure


def save_plot(figure: Figure, folder: Path, name: str = FOREST) -> None:
    """Write a plot as PDF and PNG, without dates."""
    for kind in PICTURES:
        undated = {"CreationDate": None} if kind == "pdf" else {}
        figure.savefig(folder / f"{name}.{kind}", metadata=undated)


def _draw(
    ax: Axes, row: int, claim: Judged, limits: tuple[float, float], *, is_enlarged: bool
) -> None:
    """Draw the ratio of a claim, its published value and the claimed side; right, the outcome."""
    marker, color = MARKS.get(claim["outcome"], ("", "0.6"))
    if is_enlarged:
        right = ax.get_yaxis_transform()
        ax.text(1.09, row, claim["outcome"], transform=right, color=color, va="center", size=6.5)
    (low, high), first = limits, next(iter(claim["rows"]), None)
    if not marker or first is None or (is_enlarged and not low < first["value"] < high):
        return
    sides = {"above": (1, high), "below": (low, 1)}
    side = sides.get(claim["expected"], (1 / claim["margin"], claim["margin"]))
    ax.fill_between(side, row - 0.42, row + 0.42, color="0.92", linewidth=0)
    if published := first["published"]:
        ax.vlines(published, row - 0.42, row + 0.42, color="black", linewidth=1.4)
    if "decides" in claim:
        lower, upper = (max(end, low / 2) for end in claim["decides"])
        ax.hlines(row, lower, upper, color=color, linewidth=1.4)
    value = first["value"]
    if not low < value < high:
        value, marker = (low * 1.07, "<") if value < 1 else (high / 1.07, ">")
    look: Look = {"marker": marker, "color": color, "markersize": 4.5}
    look |= {"markerfacecolor": "white"} if claim["outcome"] == "unresolved" else {}
    ax.plot(value, row, clip_on=False, zorder=4, **look)


def _legend() -> list[Line2D | Patch]:
    drawn = [
        Line2D([], [], color=color, marker=marker, markersize=4.5, label=outcome)
        for outcome, (marker, color) in MARKS.items()
    ]
    drawn[-1].set_markerfacecolor("white")
    published = Line2D([], [], color="black", marker="|", markersize=8, markeredgewidth=1.4)
    published.set(linestyle="none", label="published")
    return [*drawn, published, Patch(color="0.92", label="claimed side")]
