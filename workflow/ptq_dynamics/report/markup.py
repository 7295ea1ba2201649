"""Text and tables as HTML: whatever names and labels hold, they come out as they are."""

import json
import re
from collections.abc import Sequence
from html import escape
from typing import Any

from ptq_dynamics.claims.formats import Cell, Number, Table

DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+")
# Characters of what stands in a cell without a break.
SHORT = 28


def table(shown: Table, *, total: bool = False) -> str:
    """A table under a caption, which scripts make sortable; numbers as exact as they are stand
    behind those that are read. The first cell of a row is its head; with a `total`, the last row
    stays at the end."""
    numeric = [any(_is_number(row[at]) for row in shown.rows) for at in range(len(shown.heads))]
    heads = "".join(
        f'<th scope="col"{_class(has)}>{escape(head)}</th>'
        for head, has in zip(shown.heads, numeric, strict=True)
    )
    lines = [_row(row) for row in shown.rows]
    foot = f"<tfoot>{lines.pop()}</tfoot>" if total else ""
    body = "\n".join(lines)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(shown.title)}">'
        f'<table class="sortable"><caption>{escape(shown.title)}</caption>'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody>{foot}</table></div>"
    )


def _row(row: Sequence[Cell]) -> str:
    cells = []
    for at, cell in enumerate(row):
        tag = "td" if at else "th"
        scope = ' scope="row"' if tag == "th" else ""
        text = "" if cell is None else escape(f"{cell:,}" if isinstance(cell, int) else str(cell))
        look = _value(cell) or (' class="short"' if len(text) <= SHORT else "")
        cells.append(f"<{tag}{scope}{look}>{text}</{tag}>")
    return f"<tr>{''.join(cells)}</tr>"


def _value(cell: Cell) -> str:
    if isinstance(cell, Number):
        return f' class="number" data-value="{cell.value!r}"'
    return f' class="number" data-value="{cell}"' if _is_number(cell) else ""


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | Number) or bool(cell and DECIMAL.fullmatch(cell))


def _class(is_numeric: bool) -> str:
    return ' class="number"' if is_numeric else ""


def data(name: str, content: Any) -> str:
    """Data for scripts, which no text in it can end."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="{escape(name)}">{text}</script>'


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{escape(text)}</p>"
