"""One look for all figures: readable in greyscale and with colour-blindness, at the width that a
figure has in a paper."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb

from ptq_dynamics.figures.settings import UNDER, UNITS

# Inches of a text column, and of half of one: figures of several panels and of one.
TEXT, HALF = 5.5, 2.75
SMALLEST = 6.0  # points of the smallest letters

END = 12.0  # points², of the marker at the end of a run


@dataclass(frozen=True)
class Line:
    """How a curve is drawn; neighbours differ in hue, lightness, dash and marker; `area` of the
    marker at its end, in points²."""

    color: str
    dash: str
    marker: str
    area: float = END


# Dark to light, from Paul Tol's and Okabe and Ito's colour-blind safe sets.
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
# What has no meaning of its own takes first what means nothing elsewhere.
OTHERS = (
    LINES[5],
    LINES[7],
    Line("#882255", "--", "h"),
    Line("#999933", "-.", ">"),
    Line("#CC6677", "-", "p"),
)
# What means the same in every figure, by the first word of a label. Stars are means of the ends of
# several runs, large squares one of them.
ROLES = {
    "Stable": LINES[0],
    "Decay": LINES[1],
    "Doubled": LINES[1],
    "LAWA": LINES[2],
    "Soup": Line(LINES[3].color, "-", "*", 75.0),
    "Base": Line("#004488", "-", "s", 30.0),
    "Exponential": LINES[4],
    "Cosine": LINES[6],
    # Runs that end in a decay.
    "WSD": LINES[1],
    "Pre-training": LINES[1],
}
# Of "Soup of A" and "Base of A", which have the colour of A.
OF = {"Soup of ": ("*", 40.0), "Base of ": ("s", 24.0)}
# "LR = 3e-3" has its place in an order; so has "L = 5".
NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE]-?[0-9]+)?"
ORDERED = re.compile(rf"(\S+) = ({NUMBER})")
# A peak learning rate looks the same in every figure: its place among five, from dark to light.
# No figure has two of one place.
RATES = {3e-4: 0, 6e-4: 1, 1e-3: 1, 9e-4: 2, 3e-3: 2, 1.2e-3: 3, 1e-2: 3, 3e-2: 4}
# Models of one family that differ in size: "OLMo-2 7B".
SIZED, SIZE = re.compile(rf"(.+) ({NUMBER})([kMBT])"), "size"
# Quantities whose values have an order, as labels call them: peak learning rate, weight decay and
# window; and sizes. Each has colours of its own, from dark to light, and the share of them that is
# dark enough on white.
SEQUENTIAL = {
    "LR": ("plasma", 0.8),
    "λ": ("YlOrBr_r", 0.65),
    "L": ("Greys_r", 0.65),
    SIZE: ("PuBuGn_r", 0.65),
}
OTHER = ("viridis", 0.8)
DASHES = ("-", "--", "-.")
MARKERS = ("p", "X", "P", "v", "D", "^", "s", "h")


def in_order(labels: Sequence[str]) -> list[str]:
    """The labels, those that are values of a quantity in the order of the values."""
    values = {label: value for label in labels if (value := _value(label))}
    ranked = iter(sorted(values, key=values.__getitem__))
    return [next(ranked) if label in values else label for label in labels]


def _value(label: str) -> tuple[str, float] | None:
    # A quantity and its value.
    at = ORDERED.fullmatch(label)
    return at and (at[1], float(at[2]))


def whose(label: str) -> str:
    """The curve that another one, "Soup of A" or "Base of A", is made of, or the curve itself."""
    return next((label.removeprefix(start) for start in OF if label.startswith(start)), label)


def lines(labels: Sequence[str]) -> dict[str, Line]:
    """How the curves with these labels are drawn: those that mean the same in every figure alike,
    those that are values of one quantity in its colours, from dark to light in the order of the
    values, what is made of another curve in its colour, what is quantized in a lighter one, and
    others in turn."""
    lower = {label: at[1] for label in labels if (at := UNDER.fullmatch(label)) and at[1] in labels}
    own = [label for label in labels if label not in lower]
    found = _ranked([label for label in own if whose(label) == label])
    roles = {n: re.split(r"[\s,]", n)[0] for n in own if n not in found and whose(n) == n}
    used = {ROLES[role].color for role in roles.values() if role in ROLES}
    free = [line for line in (*OTHERS, *LINES) if line.color not in used]
    seen = list[str]()
    for label, role in roles.items():
        found[label] = _variant(ROLES[role], seen.count(role)) if role in ROLES else free.pop(0)
        seen.append(role)
    for label in own:
        if label not in found:
            marker, area = next(OF[start] for start in OF if label.startswith(start))
            found[label] = replace(found.get(whose(label), LINES[0]), marker=marker, area=area)
    for number, (label, of) in enumerate(lower.items()):
        found[label] = _variant(found[of], [*lower.values()][: number + 1].count(of))
    return found


def _ranked(labels: Sequence[str]) -> dict[str, Line]:
    """Lines of values of a quantity, or of the models of a single family by size."""
    found, by_quantity = dict[str, Line](), dict[str, dict[str, float]]()
    for label in labels:
        if value := _value(label):
            by_quantity.setdefault(value[0], {})[label] = value[1]
    sized = [at for label in labels if (at := SIZED.fullmatch(label))]
    if len(sized) > 1 and len({at[1] for at in sized}) == 1:
        by_quantity[SIZE] = {at[0]: float(at[2]) * UNITS[at[3]] for at in sized}
    for quantity, values in by_quantity.items():
        name, share = SEQUENTIAL.get(quantity, OTHER)
        known = quantity == "LR" and {*values.values()} <= RATES.keys()
        last = max(RATES.values()) if known else max(1, len(values) - 1)
        for number, label in enumerate(sorted(values, key=values.__getitem__)):
            number = RATES[values[label]] if known else number
            color = to_hex(colormaps[name](share * number / last))
            dash, marker = DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)]
            found[label] = Line(color, dash, marker)
    return found


def _variant(line: Line, number: int) -> Line:
    """The same hue, lighter, with another dash and marker, for the second of a role and so on, and
    for the first quantizer under a curve and so on."""
    if number == 0:
        return line
    place = next((n for n, each in enumerate(LINES) if each.color == line.color), 0)
    other = LINES[(place + number) % len(LINES)]
    red, green, blue = (1 - (1 - part) * 0.6**number for part in to_rgb(line.color))
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
    # It comes with matplotlib; seaborn would take Arial where that is installed.
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
    "lines.linewidth": 1.1,
    "lines.markersize": 2.2,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}
