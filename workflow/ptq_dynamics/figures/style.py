"""One look for all figures: readable in greyscale and with colour-blindness."""

from dataclasses import dataclass

import matplotlib

matplotlib.use("Agg")


@dataclass(frozen=True)
class Line:
    """How a curve is drawn; neighbours differ in hue, lightness, dash and marker."""

    color: str
    dash: str
    marker: str


# Dark to light, from Paul Tol's and Okabe and Ito's colour-blind safe sets.
LINES = (
    Line("#332288", "-", "o"),
    Line("#CC3311", "--", "s"),
    Line("#009988", "-.", "^"),
    Line("#EE9A00", "-", "D"),
    Line("#77AADD", "--", "v"),
    Line("#BBBB33", "-.", "P"),
    Line("#AA4499", "-", "X"),
    Line("#777777", "--", "*"),
)

SETTINGS = {
    "figure.dpi": 150,
    "savefig.dpi": 200,
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.grid": True,
    "grid.color": "0.88",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "xtick.major.width": 0.8,
    "ytick.major.width": 0.8,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "axes.spines.top": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 3.0,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.hashsalt": "ptq-dynamics",
}
