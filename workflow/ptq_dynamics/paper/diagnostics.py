"""What Typst complains of, as one line that names the file and the line of the text."""

import contextlib
import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from ptq_dynamics.paper.sources import FOLDER

# Where something went wrong, the innermost first.
PLACE = re.compile(r"┌─ (\S.*?):(\d+):\d+")
ASSERTED = "assertion failed: "
# What has functions for the text: what is wrong is where these are called.
HELPERS = ("lib.typ", "style.typ")
# Functions say which key they do not know so.
KEY = re.compile(r'"([^"]+)" is no key of ([\w ]+)')


def explained(diagnostic: str, message: str, folder: Path, known: Iterable[str] = ()) -> str:
    """A diagnostic on the text in a folder, in one line; beside a key that is not known, the
    nearest of those that are."""
    places = [(_within(name, folder), line) for name, line in PLACE.findall(diagnostic)]
    outside = [each for each in places if each[0] not in HELPERS]
    where = next(iter(outside or places), None)
    place = f"{FOLDER}/{where[0]}:{where[1]}" if where else FOLDER
    return f"{place}: {' '.join(message.removeprefix(ASSERTED).split())}{_near(message, known)}"


def _within(name: str, folder: Path) -> str:
    # Typst names files as seen from where it runs, or from the root of the text.
    with contextlib.suppress(ValueError):
        return Path(name).resolve().relative_to(folder.resolve()).as_posix()
    return name.lstrip("/")


def _near(message: str, known: Iterable[str]) -> str:
    found = KEY.search(message)
    near = difflib.get_close_matches(found[1], list(known), 1) if found else []
    return f"; is {near[0]} meant?" if near else ""
