"""Places of points in a figure's picture, so that a page can map a click to a point."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

# Start and length of an axis in shares of the picture, its limits, and whether it is logarithmic.
Span = tuple[float, float, float, float, bool]
STRIP = "{} rate"  # the label of the axes of the strip below a panel


def spans(figure: Figure) -> dict[str, list[Span]]:
    """Return the horizontal and vertical axis of each panel, by the label of its axes. Call this
    after the layout is final."""
    panels = dict[str, list[Span]]()
    for ax in figure.axes:
        left, bottom, width, height = (round(share, 5) for share in ax.get_position().bounds)
        panels[str(ax.get_label())] = [
            (left, width, *ax.get_xlim(), ax.get_xscale() == "log"),
            (bottom, height, *ax.get_ylim(), ax.get_yscale() == "log"),
        ]
    return panels


def place(row: Mapping[str, str], panels: Mapping[str, Sequence[Span]]) -> list[float] | None:
    """Return where the point of a table's row lies, in shares of width and height from the lower
    left. Return None if the point has no value or lies outside its panel."""
    panel = panels[STRIP.format(row["panel"]) if row["axis"] == "rate" else row["panel"]]
    across, up = (
        _share(float(row[name] or "nan"), *span) for name, span in zip("xy", panel, strict=True)
    )
    return None if across is None or up is None else [across, up]


def _share(
    value: float, start: float, length: float, low: float, high: float, log: bool
) -> float | None:
    if log:
        value, low, high = (math.log(n) if n > 0 else -math.inf for n in (value, low, high))
    share = (value - low) / (high - low)
    return round(start + length * share, 4) if 0 <= share <= 1 else None
