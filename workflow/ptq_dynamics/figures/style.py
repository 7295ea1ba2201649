"""The style of all figures, readable in greyscale and with colour-blindness."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log10

import matplotlib
from matplotlib.colors import to_hex, to_rgb
from seaborn import color_palette, set_theme

from ptq_dynamics.figures.labels import UNDER, UNITS

TEXT, HALF = 4.35, 2.75  # widths of figures in inches: a text column, and half of it
SMALLEST, NAMES = 6.5, 6.5  # the smallest font size in points, and that of names of curves
END = 16.0  # area of the marker at the end of a run, in points²


@dataclass(frozen=True)
class Line:
    """The style of a curve, with the `area` of the marker at its end in points²."""

    color: str
    dash: str
    marker: str
    area: float = END


Styles = Mapping[str, Line]  # by label


# Zero and equal values.
GUIDE: Mapping[str, object] = {"color": "0.5", "linestyle": "--", "linewidth": 0.6, "zorder": 1}

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
STABLE, DECAY, COSINE, LAWA = (
    Line("#808000", "-", "o"),
    Line("#800080", "-", "s"),
    Line("#0077BB", "-", "X"),
    Line("#E69F00", "-", "^"),
)
ROLES = {
    "Stable": STABLE,
    "Decay": DECAY,
    "LAWA": LAWA,
    "average": LAWA,
    "last": STABLE,
    "Soup": Line("#009988", "-", "*", 75.0),
    "Base": Line("#004488", "-", "s", 30.0),
    "Exponential": Line("#77AADD", "--", "v"),
    "Cosine": COSINE,
    "WSD": DECAY,
    "Pre-training": DECAY,
    "4-bit": Line("#000000", "-", "o"),
    "3-bit": Line("#777777", "-", "s"),
}
# "Soup of A" and "Base of A" have the colour of A, with these markers and areas.
OF = {"Soup of ": ("*", 40.0), "Base of ": ("s", 24.0)}
# Labels such as "LR = 3e-3" and "L = 5" are values of a quantity.
NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE]-?[0-9]+)?"
ORDERED = re.compile(rf"(\S+) = ({NUMBER})(?: %)?")
PER_DECADE = 2  # styles of peak learning rates, which are the same in every figure
# Models of one family that differ in size: "OLMo-2 7B".
SIZED, SIZE = re.compile(rf"(.+) ({NUMBER})([kMBT])"), "size"
# Colour maps of quantities in labels, and the share of each that is dark enough on white.
SEQUENTIAL = {
    "LR": ("plasma", 0.8),
    "λ": ("YlOrBr_r", 0.65),
    "L": ("Oranges_r", 0.65),  # averages are orange
    "T": (f"blend:#DDB055,{COSINE.color}", 1.0),  # the whole budget has the colour of a cosine
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


def lines(labels: Sequence[str], rates: tuple[float, float] | None = None) -> dict[str, Line]:
    """Return the styles of curves by label. Values of a quantity have its colours, roles their own
    styles, "Soup of A" and "Base of A" the colour of A; quantized curves are lighter. A peak rate
    has its place between the lowest and the highest of all `rates`."""
    bases = {label: _base(label, labels) for label in labels}
    own = [label for label, base in bases.items() if base == label]
    styles, seen = _ranked(own, rates), Counter[str]()
    roles = {label: re.split(r"[\s,]", label)[0] for label in own if label not in styles}
    used = {ROLES[role].color for role in roles.values() if role in ROLES}
    marks = {line.marker for line in styles.values()}
    unused = [line for line in (*OTHERS, *LINES) if line.color not in used]
    free = iter(sorted(unused, key=lambda line: line.marker in marks))  # other markers first
    for label, role in roles.items():
        styles[label] = _variant(ROLES[role], seen[role]) if role in ROLES else next(free)
        seen[role] += 1
    for label, base in bases.items():
        if mark := OF.get(label.partition(base)[0]):
            styles[label] = replace(styles.get(base, LINES[0]), marker=mark[0], area=mark[1])
        elif base != label:
            seen[f"under {base}"] += 1
            styles[label] = _variant(styles[base], seen[f"under {base}"])
    return styles


def _base(label: str, labels: Sequence[str]) -> str:
    """Return A for "Soup of A", "Base of A" and, if A is a label, "A (4-bit)"; else the label."""
    if (at := UNDER.fullmatch(label)) and at[1] in labels:
        return at[1]
    return next((label.removeprefix(start) for start in OF if label.startswith(start)), label)


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
            last = max(last, _steps(*rates))
            by_rate = [_steps(rates[0], values[label]) for label in ordered]
            # Rates that are closer than styles, or beyond the others, are in order.
            is_apart = len({*by_rate}) == len(by_rate) and {*by_rate} <= {*range(last + 1)}
            places = by_rate if is_apart else places
        colors = color_palette(name, as_cmap=True)
        for n, label in zip(places, ordered, strict=True):
            dash, marker = DASHES[n % len(DASHES)], MARKERS[n % len(MARKERS)]
            styles[label] = Line(to_hex(colors(share * n / last)), dash, marker)
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
    **{"labelsize": 6.5, "major.width": 0.6, "major.size": 2.0, "major.pad": 2.0},
    **{"minor.width": 0.4, "minor.size": 1.2},
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


def set_style() -> None:
    """Give artists the project's style from here on, whatever settings of matplotlib a user has."""
    matplotlib.rcdefaults()
    set_theme(style="ticks", rc=SETTINGS)
