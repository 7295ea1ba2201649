"""One look for all figures: readable in greyscale and with colour-blindness, at the width that a
figure has in a paper."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import matplotlib
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb

from ptq_dynamics.figures.settings import UNDER

matplotlib.use("Agg")

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
# For what has no meaning of its own, beside those of the lines above that mean nothing elsewhere.
OTHERS = (
    Line("#882255", "--", "h"),
    Line("#999933", "-.", ">"),
    Line("#CC6677", "-", "p"),
)
# What means the same in every figure, by the first word of a label.
ROLES = {
    "Stable": LINES[0],
    "Decay": LINES[1],
    "LAWA": LINES[2],
    "Soup": LINES[3],
    "Exponential": LINES[4],
    "Cosine": LINES[6],
    # Runs that end in a decay.
    "WSD": LINES[1],
    "Pre-training": LINES[1],
}
# "LR = 1.5e-2 ≙ 3e-3" has its place in an order; so has "L = 5".
NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE]-?[0-9]+)?"
ORDERED = re.compile(rf"(\S+) = ({NUMBER})(?: ≙ ({NUMBER}))?")
# A peak learning rate, by its name in the paper, and a window look the same in every figure: by
# their places between these two, on a logarithmic scale.
FIXED = {"LR": (3e-4, 3e-2), "L": (2.0, 100.0)}
# Places apart that have dashes or markers of their own: fewer than pairs of the two.
STEPS = 22
# Quantities whose values have an order, as labels call them: peak learning rate, weight decay,
# window and horizon. Each has colours of its own, up to where a line on white would be too light.
SEQUENTIAL = {
    "LR": ("viridis", 0.82),
    "λ": ("YlOrBr_r", 0.55),
    "L": ("Greys_r", 0.6),
    "T": ("PuRd_r", 0.68),
}
ANY_OTHER = ("YlGn_r", 0.55)
DASHES = ("-", "--", "-.")
MARKERS = ("p", "X", "P", "v", "D", "^", "s", "h")


# Of "Soup of A" and "Base of A", which have the colour of A.
OF = {"Soup of ": ("*", 60.0), "Base of ": ("s", 24.0)}


def lines(labels: Sequence[str]) -> dict[str, Line]:
    """How the curves with these labels are drawn: those that mean the same in every figure alike,
    those that are values of one quantity in its colours, from dark to light in the order of the
    values, what is made of another curve in its colour, what is quantized in a lighter one, and
    others in turn."""
    made = {label: start for label in labels for start in OF if label.startswith(start)}
    lower = {label: at[1] for label in labels if (at := UNDER.fullmatch(label))}
    lower = {label: of for label, of in lower.items() if of in labels}
    found = _lines([label for label in labels if label not in made and label not in lower])
    for label, start in made.items():
        if label not in lower:
            marker, area = OF[start]
            of = found.get(label.removeprefix(start), LINES[0])
            found[label] = replace(of, marker=marker, area=area)
    before: dict[str, int] = {}
    for label, whose in lower.items():
        before[whose] = before.get(whose, 0) + 1
        found[label] = _lighter(found[whose], before[whose])
    return found


def _lines(labels: Sequence[str]) -> dict[str, Line]:
    ordered = {label: at for label in labels if (at := ORDERED.fullmatch(label))}
    found: dict[str, Line] = {}
    for quantity in FIXED:
        places = {label: _place(at) for label, at in ordered.items() if at[1] == quantity}
        if None not in places.values():
            found |= {label: _at(quantity, place or 0.0) for label, place in places.items()}
    by_quantity: dict[str, list[str]] = {}
    for label, at in ordered.items():
        if label not in found:
            by_quantity.setdefault(at[1], []).append(label)
    for quantity, members in by_quantity.items():
        members.sort(key=lambda label: float(ordered[label][2]))
        for number, label in enumerate(members):
            found[label] = _at(quantity, number / max(1, len(members) - 1), number)
    seen: dict[str, int] = {}
    # What has no meaning of its own takes first what means nothing elsewhere.
    free = sorted(
        (line for line in (*LINES, *OTHERS) if not _is_taken(line, labels)),
        key=lambda line: line in ROLES.values(),
    )
    for label in labels:
        role = re.split(r"[\s,]", label)[0]
        if label in found:
            continue
        if role in ROLES:
            found[label] = _variant(ROLES[role], seen.setdefault(role, 0))
            seen[role] += 1
        else:
            found[label] = free.pop(0) if free else LINES[len(found) % len(LINES)]
    return found


def _place(at: re.Match[str]) -> float | None:
    """Where a value lies between the two that span the colours, from 0 to 1; None beyond them."""
    value = float(at[3] or at[2])
    low, high = FIXED[at[1]]
    return math.log(value / low) / math.log(high / low) if low <= value <= high else None


def _at(quantity: str, place: float, number: int | None = None) -> Line:
    """The line of a quantity at a place from 0, dark, to 1, light; the number, or else the place,
    gives dashes and marker."""
    colors, lightest = SEQUENTIAL.get(quantity, ANY_OTHER)
    color = to_hex(colormaps[colors](lightest * place))
    number = round(place * STEPS) if number is None else number
    return Line(color, DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)])


def _is_taken(line: Line, labels: Iterable[str]) -> bool:
    return any(ROLES.get(re.split(r"[\s,]", label)[0]) == line for label in labels)


def _variant(line: Line, number: int) -> Line:
    """The same hue, lighter, with another dash and marker, for the second of a role and so on."""
    if number == 0:
        return line
    other = LINES[(LINES.index(line) + number) % len(LINES)]
    return replace(line, color=_faded(line, 0.45), dash=other.dash, marker=other.marker)


def _lighter(line: Line, number: int) -> Line:
    """The same hue, a little lighter each time, with another dash and marker, for what is quantized
    with the first quantizer and so on."""
    dash = DASHES[(DASHES.index(line.dash) + number) % len(DASHES)]
    place = (MARKERS.index(line.marker) if line.marker in MARKERS else 0) + 3 * number
    share = 0.9 * 0.75**number
    return Line(_faded(line, share), dash, MARKERS[place % len(MARKERS)], line.area)


def _faded(line: Line, share: float) -> str:
    """Its colour, on white as this share of it."""
    red, green, blue = (1 - (1 - part) * share for part in to_rgb(line.color))
    return to_hex((red, green, blue))


SETTINGS = {
    "figure.dpi": 150,
    "savefig.dpi": 300,
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.labelsize": 7,
    "legend.fontsize": 6.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "axes.grid": True,
    "grid.color": "0.88",
    "grid.linewidth": 0.4,
    "axes.axisbelow": True,
    "axes.linewidth": 0.6,
    "axes.titlepad": 3.0,
    "axes.labelpad": 2.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.0,
    "ytick.major.size": 2.0,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.minor.size": 1.2,
    "ytick.minor.size": 1.2,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "axes.spines.top": False,
    "lines.linewidth": 1.1,
    "lines.markersize": 2.2,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.hashsalt": "ptq-dynamics",
}
