"""The code of a job: what it reaches, by digests, and the one digest over all of that."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from ptq_dynamics.base.content import canonical

# In a specification beside its code: what that is of. Records have it in a table that they share.
DEFINITIONS = "definitions"

Definitions = Mapping[str, str]


class Code(NamedTuple):
    """Digests of what a job reaches, by name, and the libraries that it imports."""

    definitions: Definitions
    libraries: Sequence[str]


def over(definitions: Definitions) -> str:
    """Hex sha256 over definitions and their digests."""
    return sha256(canonical(definitions).encode()).hexdigest()
