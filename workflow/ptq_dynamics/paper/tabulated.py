"""What the text is told of tables, from their CSV files."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.paper.numbers import shown, whole

ERROR = " (error)"


@dataclass(frozen=True)
class Tabulated:
    """Heads, each a group of columns and the column's name, and rows of text, with None in empty
    cells; which columns are numbers."""

    heads: list[tuple[str, str]]
    numeric: list[bool]
    rows: list[list[str | None]]

    def content(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def table(text: str, place: str) -> Tabulated:
    """A table from its CSV, without columns that are empty; raises `Problem`, with the `place` of
    the file, where it has no head."""
    head, *rows = list(csv.reader(io.StringIO(text))) or [[]]
    if not head:
        raise Problem(f"{place} is empty; remove its manifest and build again")
    places = [at for at, name in enumerate(head) if not name.endswith(ERROR)]
    places = [at for at in places if not rows or any(row[at] for row in rows)]
    heads = [_grouped(head[at]) for at in places]
    numeric = [_has_error(head, at) or _is_counted(rows, at) for at in places]
    return Tabulated(heads, numeric, [[_cell(head, row, at) for at in places] for row in rows])


def _grouped(name: str) -> tuple[str, str]:
    """What is before the last comma of a head is what is told; the rest, where."""
    column, _, group = name.rpartition(", ")
    return (group, column) if column else ("", name)


def _has_error(head: Sequence[str], at: int) -> bool:
    return at + 1 < len(head) and head[at + 1] == head[at] + ERROR


def _is_counted(rows: Sequence[Sequence[str]], at: int) -> bool:
    return bool(rows) and all(row[at].isdecimal() or not row[at] for row in rows)


def _cell(head: Sequence[str], row: Sequence[str], at: int) -> str | None:
    if not row[at]:
        return None
    if _has_error(head, at):
        if not math.isfinite(float(row[at])):
            return None
        return shown(float(row[at]), float(row[at + 1]) if row[at + 1] else None)
    return whole(int(row[at])) if row[at].isdecimal() else row[at]
