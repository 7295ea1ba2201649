"""The page beside the pictures of a folder: their titles and captions, for those who look at them.

It is no result of a job, so that another caption redraws nothing.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Figure
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.paths import MANIFEST
from ptq_dynamics.figures.settings import FINDING, TABLE

PAGE = "README.md"
PICTURE = "png"
INTRODUCTION = (
    "# Figures\n\n"
    "Titles and captions are those of `config/figures.yaml`, and name rates as the paper does. The "
    "small line above a figure states its scale, seeds and calibration sets, and which differences "
    "it resolves.\n"
)


def page(figures: Mapping[str, Figure], folder: Path) -> str:
    """Picture, title and caption of every figure that is drawn in a folder, in the order of the
    configuration."""
    drawn = {
        name: each for name, each in figures.items() if (folder / f"{name}.{PICTURE}").exists()
    }
    sections = [
        f"\n## {name}: {each.title}\n\n"
        f"![{each.title}]({name}.{PICTURE})\n\n"
        f"{' '.join([each.caption, *_found(folder, name)])} "
        f"[Table of what is drawn]({name}.{TABLE}).\n"
        for name, each in drawn.items()
    ]
    return "".join([INTRODUCTION, *sections])


def _found(folder: Path, name: str) -> list[str]:
    """What the numbers of a figure say, where its manifest is beside it and has a sentence."""
    with contextlib.suppress(Problem):
        finding = manifest.read(folder / f"{name}.{MANIFEST}").facts.get(FINDING)
        return [str(finding)] if finding else []
    return []


def write_page(figures: Mapping[str, Figure], folder: Path) -> None:
    """Write the page of a folder, unless it is there as it should be."""
    path, text = folder / PAGE, page(figures, folder)
    if not path.is_file() or path.read_bytes() != text.encode():
        write_atomically(path, text)
