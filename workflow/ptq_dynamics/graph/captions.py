"""The page beside the pictures of a folder: their titles and captions, for those who look at them.

It is no result of a job, so that another caption redraws nothing.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Figure
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.paths import MANIFEST
from ptq_dynamics.figures.settings import FINDING, TABLE

PAGE = "README.md"
INTRODUCTION = (
    "# Figures\n\n"
    "Titles and captions are those of `config/figures.yaml`, and name rates as the paper does. The "
    "small line above a figure states its scale, seeds and calibration sets, and which differences "
    "it resolves.\n"
)


def page(figures: Mapping[str, Figure], folder: Path) -> str:
    """Picture, title and caption of every figure that is drawn in a folder, in the order of the
    configuration; and what the figure's numbers say, where its manifest has a sentence."""
    text = INTRODUCTION
    for name, each in figures.items():
        if (folder / f"{name}.png").exists():
            words = each.caption
            with suppress(Problem, KeyError):
                words += f" {manifest.read(folder / f'{name}.{MANIFEST}').facts[FINDING]}"
            text += (
                f"\n## {name}: {each.title}\n\n![{each.title}]({name}.png)\n\n"
                f"{words} [Table of what is drawn]({name}.{TABLE}).\n"
            )
    return text


def write_page(figures: Mapping[str, Figure], folder: Path) -> None:
    """Write the page of a folder, unless it is there as it should be."""
    path, text = folder / PAGE, page(figures, folder)
    if not path.is_file() or path.read_bytes() != text.encode():
        write_atomically(path, text)
