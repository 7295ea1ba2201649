"""What Typst complains of, as one line that names the file and the line of the text."""

import difflib
import re
from collections.abc import Iterable

from ptq_dynamics.paper.sources import FOLDER

# Where something went wrong, the innermost first.
PLACE = re.compile(r"┌─ (\S.*?):(\d+):\d+")
ASSERTED = "assertion failed: "
# What has functions for the text: what is wrong is where these are called.
HELPERS = ("lib.typ", "style.typ")
# Functions say which key they do not know so.
KEY = re.compile(r'"([^"]+)" is no key of ([\w ]+)')


def explained(diagnostic: str, message: str, known: Iterable[str] = ()) -> str:
    """A diagnostic in one line; beside a key that is not known, the nearest of those that are."""
    places = [(name.lstrip("/"), line) for name, line in PLACE.findall(diagnostic)]
    outside = [each for each in places if each[0] not in HELPERS]
    where = next(iter(outside or places), None)
    place = f"{FOLDER}/{where[0]}:{where[1]}" if where else FOLDER
    return f"{place}: {' '.join(message.removeprefix(ASSERTED).split())}{_near(message, known)}"


def _near(message: str, known: Iterable[str]) -> str:
    found = KEY.search(message)
    near = difflib.get_close_matches(found[1], list(known), 1) if found else []
    return f"; is {near[0]} meant?" if near else ""
