"""The numbers that figures draw and that runs note while they train, as data of the page."""

import base64
import csv
import math
from collections.abc import Iterable, Sequence
from typing import Any

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.settings import TABLE, in_group
from ptq_dynamics.figures.style import LINES, Line, lines
from ptq_dynamics.train.trajectory import CURVE

# Of a training curve the page shows at most so many records, evenly spread to the last, in so many
# digits: there are hundreds of runs.
MOST, DIGITS = 150, 6
# Columns that are names, also where all of them look like numbers.
NAMES = {"panel", "curve", "segment", "axis", "point", "checkpoint", "task"}


def picture(figure: Manifest, name: str) -> str:
    """A figure's picture, byte for byte, as an address that holds it."""
    held = base64.b64encode(figure.file(f"{name}.png").read_bytes()).decode()
    return f"data:image/png;base64,{held}"


def size(figure: Manifest, name: str) -> tuple[int, int]:
    """Width and height of a figure's picture in pixels, from its head."""
    head = figure.file(f"{name}.png").read_bytes()[16:24]
    return int.from_bytes(head[:4]), int.from_bytes(head[4:])


def table(figure: Manifest, name: str) -> list[dict[str, Any]]:
    """The columns of the table of what a figure draws."""
    with figure.file(f"{name}.{TABLE}").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    return [_column(title, [row[at] for row in rows]) for at, title in enumerate(head)]


def _column(title: str, cells: Sequence[str]) -> dict[str, Any]:
    """A column: its numbers, null where there is none; or its different words, and which is
    where."""
    if title not in NAMES:
        try:
            return {"name": title, "values": [_number(cell) for cell in cells]}
        except ValueError:
            pass
    words = list(dict.fromkeys(cells))
    places = {word: place for place, word in enumerate(words)}
    return {"name": title, "words": words, "at": [places[cell] for cell in cells]}


def _number(cell: str) -> float | None:
    value = float(cell) if cell else math.nan
    return value if math.isfinite(value) else None


def looks(figure: Sequence[dict[str, Any]], labels: Iterable[str]) -> dict[str, dict[str, str]]:
    """Colour, dash and marker of every curve of a figure's table, as its picture has them; `labels`
    are its curves in the order of the legend."""
    words: list[str] = next((each["words"] for each in figure if each["name"] == "curve"), [])
    known = [name for label in labels for name in (label, in_group(label)[1]) if name in words]
    ordered = list(dict.fromkeys([*known, *words]))
    found = lines(ordered)
    return {label: _look(found[label]) for label in ordered}


def palette() -> list[dict[str, str]]:
    """How lines without a meaning are drawn, in turn."""
    return [_look(line) for line in LINES]


def _look(line: Line) -> dict[str, str]:
    return {"color": line.color, "dash": line.dash, "mark": line.marker}


def training(run: Sequence[Manifest]) -> dict[str, list[float | None]] | None:
    """The columns of a run's training curve, thinned; None of what was not trained here."""
    parts = [part for part in run if CURVE in part.files]
    if not parts:
        return None
    with parts[0].file(CURVE).open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    step = max(1, -(-len(rows) // MOST))
    # From the end backwards, so that the last record is there.
    shown = rows[::-1][::step][::-1]
    return {title: [_rounded(_number(row[at])) for row in shown] for at, title in enumerate(head)}


def _rounded(number: float | None) -> float | None:
    return number if number is None or number.is_integer() else float(f"{number:.{DIGITS}g}")
