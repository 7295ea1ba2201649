"""The style of all figures, readable in greyscale and with colour-blindness."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log10
from typing import Literal, TypedDict

from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb

from ptq_dynamics.figures.labels import UNDER, UNITS

TEXT, HALF = 5.5, 2.75  # widths of figures in inches: a text column, and half of it
SMALLEST, NAMES = 6.0, 6.5  # the smallest font size in points, and that of names of curves
END = 16.0  # area of the marker at the end of a run, in points²


@dataclass(frozen=True)
class Line:
    """The style of a curve, with the `area` of the marker at its end in points²."""

    color: str
    dash: str
    marker: str
    area: float = END


Styles = Mapping[str, Line]  # by label


class Look(TypedDict, total=False):
    """Properties of lines as matplotlib names them, sizes in points."""

    color: str
    linestyle: str
    linewidth: float
    elinewidth: float
    marker: str
    markersize: float
    markerfacecolor: str
    markeredgecolor: str
    markeredgewidth: float
    markevery: slice
    fillstyle: Literal["none"]
    alpha: float
    label: str
    zorder: float


# Neighbours differ in hue, lightness, dash and marker. Colours are by Tol, and by Okabe and Ito.
LINES = (
    Line("#332288", "-", "o"),
    Line("#CC3311", "--", "s"),
    Line("#009988", "-.", "^"),
    Line("#EE9A00", "-", "D"),
    Line("#77AADD", "--", "v"),
    Line("#117733", "-.", "P"),
    Line("#AA4499", "-", "X"),
    Line("#888888", "--", "<"),
)
OTHERS = (  # curves without a role take these first
    LINES[5],
    LINES[7],
    Line("#882255", "--", "h"),
    Line("#999933", "-.", ">"),
    Line("#CC6677", "-", "p"),
)
# Styles by the first word of a label, with the paper's colours of its three kinds of runs. Stars
# are means of several runs, large squares are one run.
STABLE, DECAY, COSINE = (
    Line("#808000", "-", "o"),
    Line("#800080", "-", "s"),
    Line("#0077BB", "-", "X"),
)
ROLES = {
    "Stable": STABLE,
    "Decay": DECAY,
    "Doubled": DECAY,
    "LAWA": Line("#E69F00", "-", "^"),
    "Soup": Line("#009988", "-", "*", 75.0),
    "Base": Line("#004488", "-", "s", 30.0),
    "Exponential": Line("#77AADD", "--", "v"),
    "Cosine": COSINE,
    "WSD": DECAY,
    "Pre-training": DECAY,
}
# "Soup of A" and "Base of A" have the colour of A, with these markers and areas.
OF = {"Soup of ": ("*", 40.0), "Base of ": ("s", 24.0)}
# Labels such as "LR = 3e-3" and "L = 5" are values of a quantity.
NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE]-?[0-9]+)?"
ORDERED = re.compile(rf"(\S+) = ({NUMBER})")
PER_DECADE = 2  # styles of peak learning rates, which are the same in every figure
# Models of one family that differ in size: "OLMo-2 7B".
SIZED, SIZE = re.compile(rf"(.+) ({NUMBER})([kMBT])"), "size"
# Colour maps of quantities in labels, and the share of each that is dark enough on white.
SEQUENTIAL = {
    "LR": ("plasma", 0.8),
    "λ": ("YlOrBr_r", 0.65),
    "L": ("Greys_r", 0.65),
    SIZE: ("PuBuGn_r", 0.65),
}
OTHER = ("viridis", 0.8)
DASHES = ("-", "--", "-.")
MARKERS = ("p", "X", "P", "v", "D", "^", "s", "h")


def sorted_labels(labels: Sequence[str]) -> list[str]:
    """Return the labels, with values of a quantity in ascending order."""
    values = {label: value for label in labels if (value := _value(label))}
    ranked = iter(sorted(values, key=values.__getitem__))
    return [next(ranked) if label in values else label for label in labels]


def _value(label: str) -> tuple[str, float] | None:
    at = ORDERED.fullmatch(label)
    return at and (at[1], float(at[2]))


def whose(label: str) -> str:
    """Return A for the labels "Soup of A" and "Base of A", or the label itself."""
    return next((label.removeprefix(start) for start in OF if label.startswith(start)), label)


def lines(labels: Sequence[str], rates: tuple[float, float] | None = None) -> dict[str, Line]:
    """Return the styles of curves by label. Values of a quantity have its colours, roles their own
    styles, "Soup of A" and "Base of A" the colour of A; quantized curves are lighter. A peak rate
    has its place between the lowest and the highest of all `rates`."""
    lower = {label: at[1] for label in labels if (at := UNDER.fullmatch(label)) and at[1] in labels}
    own = [label for label in labels if label not in lower]
    styles = _ranked([label for label in own if whose(label) == label], rates)
    roles = {n: re.split(r"[\s,]", n)[0] for n in own if n not in styles and whose(n) == n}
    used = {ROLES[role].color for role in roles.values() if role in ROLES}
    free = [line for line in (*OTHERS, *LINES) if line.color not in used]
    seen = list[str]()
    for label, role in roles.items():
        styles[label] = _variant(ROLES[role], seen.count(role)) if role in ROLES else free.pop(0)
        seen.append(role)
    for label in own:
        if label not in styles:
            marker, area = next(OF[start] for start in OF if label.startswith(start))
            styles[label] = replace(styles.get(whose(label), LINES[0]), marker=marker, area=area)
    for number, (label, group) in enumerate(lower.items()):
        styles[label] = _variant(styles[group], [*lower.values()][: number + 1].count(group))
    return styles


def _ranked(labels: Sequence[str], rates: tuple[float, float] | None) -> dict[str, Line]:
    """Return styles of values of a quantity, or of the sizes of one family of models."""
    styles, by_quantity = dict[str, Line](), dict[str, dict[str, float]]()
    for label in labels:
        if value := _value(label):
            by_quantity.setdefault(value[0], {})[label] = value[1]
    sized = [at for label in labels if (at := SIZED.fullmatch(label))]
    if len(sized) > 1 and len({at[1] for at in sized}) == 1:
        by_quantity[SIZE] = {at[0]: float(at[2]) * UNITS[at[3]] for at in sized}
    for quantity, values in by_quantity.items():
        name, share = SEQUENTIAL.get(quantity, OTHER)
        ordered = sorted(values, key=values.__getitem__)
        places, last = [*range(len(values))], max(1, len(values) - 1)
        if rates and quantity == "LR" and min(values.values()) > 0:
            lowest, highest = rates
            last = max(last, _steps(lowest, highest))
            by_rate = [_steps(lowest, values[label]) for label in ordered]
            # Rates that are closer than styles, or beyond the others, are in order.
            is_apart = len({*by_rate}) == len(by_rate) and {*by_rate} <= {*range(last + 1)}
            places = by_rate if is_apart else places
        for number, label in zip(places, ordered, strict=True):
            color = to_hex(colormaps[name](share * number / last))
            dash, marker = DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)]
            styles[label] = Line(color, dash, marker)
    return styles


def _steps(lowest: float, rate: float) -> int:
    return round(PER_DECADE * log10(rate / lowest))


def _variant(line: Line, number: int) -> Line:
    """Return a lighter style with another dash and marker, for the curve `number` of a role."""
    if number == 0:
        return line
    place = next((n for n, other in enumerate(LINES) if other.color == line.color), 4)
    other = LINES[(place + number) % len(LINES)]
    red, green, blue = (1 - (1 - part) * 0.75**number for part in to_rgb(line.color))
    return replace(line, color=to_hex((red, green, blue)), dash=other.dash, marker=other.marker)


TICKS = {
    "labelsize": 6.5,
    "major.width": 0.6,
    "major.size": 2.0,
    "major.pad": 2.0,
    "minor.width": 0.4,
    "minor.size": 1.2,
}
SETTINGS = {f"{axis}tick.{name}": value for axis in "xy" for name, value in TICKS.items()} | {
    # This font is part of matplotlib; seaborn prefers Arial if it is installed.
    "font.sans-serif": ["DejaVu Sans"],
    "figure.dpi": 150,
    "savefig.dpi": 300,
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.labelsize": 7,
    "legend.fontsize": 6.5,
    "axes.grid": True,
    "grid.color": "0.88",
    "grid.linewidth": 0.4,
    "axes.linewidth": 0.6,
    "axes.titlepad": 3.0,
    "axes.labelpad": 2.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.1,
    "lines.markersize": 2.2,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}
