"""Settings of the stage that typesets the paper, and the files that its text is in."""

from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem

PAPER = "paper.pdf"
DATA = "data.json"
FOLDER, MAIN = "paper", "paper.typ"
# Labels of the inputs, beside one for every figure.
JUDGED, TABLES, MEASURED = "claims", "tables", "measurements"


class PaperSettings(Strict):
    """The scale's description; what the text is told of the configuration, as plain data; the
    figures that are drawn; and the digests of the text's files, by name."""

    description: str
    told: dict[str, Any]
    figures: tuple[str, ...]
    sources: dict[str, str]


def label(figure: str) -> str:
    """The label of a figure's manifest among the inputs."""
    return f"figure {figure}"


def sources(root: Path) -> dict[str, str]:
    """Digests of all files of the text below the folder of a checkout, by name; `Problem` where
    there is none."""
    folder = root / FOLDER
    # Below the folders of scales lies what was made of it.
    found = sorted((*folder.glob("*.typ"), *folder.glob("sections/*.typ")))
    if folder / MAIN not in found:
        raise Problem(f"{FOLDER}/{MAIN} is missing; restore it with git checkout {FOLDER}")
    return {path.relative_to(folder).as_posix(): sha256(path) for path in found}
