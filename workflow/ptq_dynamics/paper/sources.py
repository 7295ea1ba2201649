"""The files that the text is in: Typst sources in the folder `paper` of the checkout."""

from collections.abc import Iterable
from pathlib import Path

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.paper.settings import Source

FOLDER = "paper"
MAIN = "paper.typ"
SUFFIX = ".typ"
SECTIONS = "sections"


def find(root: Path) -> tuple[Source, ...]:
    """All files of the text below the folder of a checkout; `Problem` where there is none."""
    folder = root / FOLDER
    # Below the folders of scales lies what was made of it.
    found = sorted((*folder.glob(f"*{SUFFIX}"), *folder.glob(f"{SECTIONS}/*{SUFFIX}")))
    if folder / MAIN not in found:
        raise Problem(f"{FOLDER}/{MAIN} is missing; restore it with git checkout {FOLDER}")
    return tuple(Source(path.relative_to(folder).as_posix(), sha256(path)) for path in found)


def places(root: Path, figure: str) -> list[str]:
    """Files and lines of the text in a checkout that place a figure."""
    call, found = f'#fig("{figure}"', list[str]()
    for path in sorted((root / FOLDER / SECTIONS).glob(f"*{SUFFIX}")):
        lines = path.read_text(encoding="utf-8").splitlines()
        name = path.relative_to(root).as_posix()
        found += [f"{name}:{number}" for number, line in enumerate(lines, 1) if call in line]
    return found


def copy(sources: Iterable[Source], root: Path, target: Path) -> None:
    """Copy the text to another folder; `Problem` where it is not what it was when it was
    planned."""
    for source in sources:
        path = root / FOLDER / source.name
        if not path.is_file() or sha256(path) != source.digest:
            place = f"{FOLDER}/{source.name}"
            raise Problem(f"{place} was edited since this job was planned; run the command again")
        copied = target / source.name
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(path.read_bytes())
