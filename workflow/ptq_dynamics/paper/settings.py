"""Settings of the stage that typesets the paper, and the files of its text."""

from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem

PAPER = "paper.pdf"
DATA = "data.json"
FOLDER, MAIN = "paper", "paper.typ"


class PaperSettings(Strict):
    """Configuration for the text, as plain data, and digests of the text's files by name. Inputs
    are `claims`, `tables`, `measurements` and `figure NAME`."""

    told: dict[str, Any]
    sources: dict[str, str]


def sources(root: Path) -> dict[str, str]:
    """Return digests of the text's files by name; `Problem` if paper.typ is missing."""
    folder = root / FOLDER
    # The folders of scales hold results.
    found = sorted((*folder.glob("*.typ"), *folder.glob("sections/*.typ")))
    if folder / MAIN not in found:
        raise Problem(f"{FOLDER}/{MAIN} is missing; restore it with git checkout {FOLDER}")
    return {path.relative_to(folder).as_posix(): sha256(path) for path in found}
