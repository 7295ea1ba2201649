"""The page of a scale's figures, with their titles and captions. No job depends on it."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.paths import MANIFEST, RECORD
from ptq_dynamics.figures.figure import Figure
from ptq_dynamics.figures.labels import FINDING, TABLE

PAGE = "README.md"
ACROSS = 4  # small pictures in a row of the page
INTRODUCTION = (
    "# Figures\n\n"
    "Titles and captions come from `config/figures.yaml` and use the paper's learning rates. "
    "Captions end with the actual rates and the number of calibration sets.\n"
)


def page(figures: Mapping[str, Figure], folder: Path) -> str:
    """Return pictures, titles, captions and findings of the figures in a folder, as Markdown. Small
    pictures that link to them come first."""
    text, cells = "", list[str]()
    for name, figure in figures.items():
        if (folder / f"{name}.{RECORD}").exists():
            caption, head = figure.caption, f"{name}: {figure.title}"
            with suppress(Problem, KeyError):
                caption += f" {manifest.read(folder / f'{name}.{MANIFEST}').facts[FINDING]}"
            text += f"\n## {head}\n\n![{figure.title}]({name}.png)\n\n"
            text += f"{caption} [Table of what is drawn]({name}.{TABLE}).\n"
            # As GitHub names the anchor of a heading.
            anchor = re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-")
            cells.append(f'[<img src="{name}.png" width="180"><br>{name}](#{anchor})')
    rows = [cells[start : start + ACROSS] for start in range(0, len(cells), ACROSS)]
    rows[1:1] = [["---"] * ACROSS] * bool(rows)
    sheet = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return INTRODUCTION + (f"\n{sheet}" if sheet else "") + text


def has_page(figures: Mapping[str, Figure], folder: Path) -> bool:
    """Return whether the page of a folder is as it has to be; without figures, there is none."""
    path, text = folder / PAGE, page(figures, folder)
    return text == INTRODUCTION or (path.is_file() and path.read_bytes() == text.encode())


def write_page(figures: Mapping[str, Figure], folder: Path) -> None:
    """Write the page of a folder if it changed. No job depends on it."""
    if not has_page(figures, folder):
        write_atomically(folder / PAGE, page(figures, folder))
