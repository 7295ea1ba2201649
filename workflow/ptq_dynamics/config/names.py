"""Names that the files under config/ give to things.

They become folders, values of Snakemake's wildcards and targets on the command line, so they follow
one pattern.
"""

import difflib
from collections.abc import Iterable
from typing import Annotated, TypeVar

from pydantic import Field

from ptq_dynamics.base.problem import Problem

T = TypeVar("T")
PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$"
Name = Annotated[str, Field(pattern=PATTERN, max_length=100)]
Named = dict[Name, T]
# Names of a kind that an error lists.
MOST_KNOWN = 20


def require(place: str, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `Problem` when a name is not one of those known."""
    for name in names:
        if name not in known:
            near, said = [*known], "known"
            if len(near) > MOST_KNOWN:
                near, said = difflib.get_close_matches(name, near, 3, 0), "the nearest"
            raise Problem(f"{place} names no known {kind}: {name!r} ({said}: {', '.join(near)})")
