"""The archive of a release, whose records are read without unpacking what they tell of."""

import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import codes
from ptq_dynamics.engine.paths import RECORD

RELEASE = "release.tar.xz"
# What reading a damaged archive ends in.
HARMS = (tarfile.TarError, EOFError, OSError, KeyError, ValueError, zlib.error, lzma.LZMAError)


def records(release: Path) -> Iterator[tuple[Path, str]]:
    """All records in an archive: where each lies, below the path of the archive, and its text.

    Raises `Problem` where it is none.
    """
    yield from _texts(release, lambda path: path.name.endswith(RECORD))


def code(release: Path) -> codes.Table:
    """What an archive says that the code of results was; nothing where there is none."""
    if not release.is_file():
        return {}
    texts = _texts(release, lambda path: path.parent.name == codes.FOLDER)
    found = ((path.stem, codes.whole(path, text)) for path, text in texts)
    return {code: definitions for code, definitions in found if definitions is not None}


def _texts(release: Path, is_wanted: Callable[[Path], bool]) -> Iterator[tuple[Path, str]]:
    try:
        with tarfile.open(release, "r|*") as packed:
            for entry in packed:
                file = packed.extractfile(entry) if is_wanted(Path(entry.name)) else None
                if file is not None:
                    yield release / entry.name, file.read().decode()
    except HARMS as error:
        # Of an archive that is none at all, tar tells line by line what else it is not.
        why = str(error).partition("\n")[0]
        raise Problem(f"{release} is none that tar reads ({why})") from None
