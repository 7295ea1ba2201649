"""What a picture carries in its metadata: the scale, and the identity of what it is made from."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ptq_dynamics.figures.settings import ORIGIN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The fields of a format that hold it.
FIELDS = {".pdf": "Keywords", ".png": "Source"}


def save(figure: "Figure", path: Path, scale: str, identity: str) -> None:
    """Write a picture that carries its scale and identity; equal input gives equal bytes."""
    told = {FIELDS[path.suffix]: ORIGIN.format(scale=scale, identity=identity)}
    undated = {"CreationDate": None} if path.suffix == ".pdf" else {}
    figure.savefig(path, metadata=told | undated)


def identity_in(path: Path) -> tuple[str, str] | None:
    """The scale and the identity that a picture carries, whatever it is called: both formats have
    these words in their bytes as they are. None of other files."""
    words = ORIGIN.format(scale="([^:\n]+)", identity="([0-9a-f]{64})")
    found = re.search(words.encode(), path.read_bytes())
    return (found[1].decode("latin-1"), found[2].decode()) if found else None
