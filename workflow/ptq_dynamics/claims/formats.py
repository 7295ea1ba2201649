"""Tables of numbers with errors, as CSV, Markdown and LaTeX (booktabs)."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

# Numbers outside these limits are written with a power of ten.
SMALL, LARGE = 1e-3, 1e6
DIGITS = 4  # of a number without an error
ERROR = "{} (error)"  # head of the column of errors


class Number(NamedTuple):
    """A measured value and its error, if known."""

    value: float
    error: float | None = None

    def __str__(self) -> str:
        """Return value and error to two digits of the smaller; four digits without an error."""
        value, error = self
        if not math.isfinite(value):
            return ""
        if error is None or not math.isfinite(error) or error == 0:
            return f"{value:.{DIGITS}g}"
        if max(abs(value), error) < SMALL or max(abs(value), error) >= LARGE:
            power = math.floor(math.log10(max(abs(value), error)))
            return f"({Number(value / 10.0**power, error / 10.0**power)})e{power}"
        places = max(0, 1 - math.floor(math.log10(min(error, abs(value) or error))))
        return f"{value:.{places}f} ± {error:.{places}f}"


Cell = str | int | Number | None


class Table(NamedTuple):
    """Rows of cells under the names of columns."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def as_csv(table: Table) -> str:
    """Return CSV with unrounded values and errors, each in a column."""
    columns = dict[str, list[object]]()
    for head, *cells in zip(table.heads, *table.rows, strict=True):
        columns[head] = [getattr(cell, "value", cell) for cell in cells]
        if has_numbers(cells):
            columns[ERROR.format(head)] = [getattr(cell, "error", None) for cell in cells]
    frame = pd.DataFrame(columns, dtype=object).replace([math.inf, -math.inf], None)
    return frame.to_csv(index=False, lineterminator="\n")


def as_markdown(table: Table) -> str:
    """Return a Markdown table under its title."""
    lines = [table.heads, ["---"] * len(table.heads), *_texts(table)]
    body = (f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |\n" for line in lines)
    return f"# {table.title}\n\n{''.join(body)}"


def as_latex(table: Table) -> str:
    """Return a tabular with the rules of booktabs, after its title in a comment."""
    columns = zip(table.heads, *table.rows, strict=True)
    sides = "".join("r" if has_numbers(column) else "l" for column in columns)
    frame = pd.DataFrame(_texts(table), columns=list(table.heads))
    return f"% {table.title}\n{frame.to_latex(index=False, escape=True, column_format=sides)}"


FORMATS: dict[str, Callable[[Table], str]] = {"csv": as_csv, "md": as_markdown, "tex": as_latex}


def has_numbers(cells: Sequence[object]) -> bool:
    """Return whether a column has measured values."""
    return any(isinstance(cell, Number) for cell in cells)


def _texts(table: Table) -> list[list[str]]:
    return [["" if c is None else " ".join(str(c).split()) for c in row] for row in table.rows]
