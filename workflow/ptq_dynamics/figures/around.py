"""What stands around the panels of a figure: small words above, a legend below."""

from collections.abc import Mapping, Sequence
from itertools import islice
from textwrap import wrap

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ptq_dynamics.figures.style import SMALLEST

ENTRY, LETTER = 0.42, 0.052  # inches of an entry of the legend without its label, and of a letter
SMALL_LETTER, SMALL_LINE = 0.049, 0.115  # inches of a letter, and a line, of those at the top
LINES = 3  # at the top, for which there is room
MOST = 5  # columns of the legend


def head(figure: Figure, text: str) -> None:
    """Small words at the top right, in as many lines as they take."""
    width = int(figure.get_figwidth() / SMALL_LETTER)
    rows = wrap(text, width, break_on_hyphens=False)
    beyond = len(rows) - LINES
    if beyond > 0:
        figure.set_figheight(figure.get_figheight() + beyond * SMALL_LINE)
    figure.suptitle("\n".join(rows), x=0.995, ha="right", fontsize=SMALLEST, color="0.35")


def legend(
    figure: Figure, axes: Sequence[Axes], more: Mapping[str, Artist], curves: Sequence[str] = ()
) -> None:
    """One legend below the panels: every label once, in the order of the curves, then some more, as
    many in a row as there is room for; none where there is one curve alone."""
    found: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    found = {**{label: found[label] for label in curves if label in found}, **found, **more}
    if len(found) < 2:
        return
    columns = _columns([len(label) for label in found], figure.get_figwidth())
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns)


def _columns(lengths: Sequence[int], width: float) -> int:
    """The most columns that have room for labels of so many letters, which fill one
    after the other."""
    for columns in range(min(MOST, len(lengths)), 1, -1):
        rows, more = divmod(len(lengths), columns)
        rest = iter(lengths)
        each = [list(islice(rest, rows + (at < more))) for at in range(columns)]
        if sum(ENTRY + LETTER * max(column) for column in each) <= width:
            return columns
    return 1
