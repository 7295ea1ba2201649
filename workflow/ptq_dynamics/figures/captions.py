"""The page of a scale's figures, with their titles and captions. No job depends on it."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.paths import MANIFEST, RECORD
from ptq_dynamics.figures import contact
from ptq_dynamics.figures.figure import Figure
from ptq_dynamics.figures.labels import FINDING, TABLE

PAGE = "README.md"
INTRODUCTION = (
    "# Figures\n\n"
    "Titles and captions come from `config/figures.yaml` and use the paper's learning rates. "
    "Captions end with the actual rates and the number of calibration sets.\n"
)


def page(figures: Mapping[str, Figure], folder: Path) -> str:
    """Return pictures, titles, captions and findings of the figures in a folder, as Markdown. Their
    contact sheet and links to them come first."""
    text, links = "", list[str]()
    for name in _drawn(figures, folder):
        caption, head = figures[name].caption, f"{name}: {figures[name].title}"
        with suppress(Problem, KeyError):
            caption += f" {manifest.read(folder / f'{name}.{MANIFEST}').facts[FINDING]}"
        text += f"\n## {head}\n\n![{figures[name].title}]({name}.png)\n\n"
        text += f"{caption} [Table of what is drawn]({name}.{TABLE}).\n"
        # As GitHub names the anchor of a heading.
        anchor = re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-")
        links.append(f"[{name}](#{anchor})")
    sheet = f"\n![All figures, small]({contact.SHEET})\n\n{' · '.join(links)}\n"
    return INTRODUCTION + (sheet if links else "") + text


def _drawn(figures: Iterable[str], folder: Path) -> dict[str, Path]:
    """Return the pictures in a folder by figure."""
    recorded = (name for name in figures if (folder / f"{name}.{RECORD}").exists())
    pictures = {name: folder / f"{name}.png" for name in recorded}
    return {name: path for name, path in pictures.items() if path.is_file()}


def has_page(figures: Mapping[str, Figure], folder: Path) -> bool:
    """Return whether the page of a folder is as it has to be; without figures, there is none."""
    path, pictures = folder / PAGE, [*_drawn(figures, folder).values()]
    return not pictures or (
        path.is_file()
        and path.read_bytes() == page(figures, folder).encode()
        and contact.is_current(pictures, folder / contact.SHEET)
    )


def write_page(figures: Mapping[str, Figure], folder: Path) -> None:
    """Write the page of a folder and its contact sheet if they changed. No job depends on them."""
    if not has_page(figures, folder):
        contact.write([*_drawn(figures, folder).values()], folder / contact.SHEET)
        write_atomically(folder / PAGE, page(figures, folder))
