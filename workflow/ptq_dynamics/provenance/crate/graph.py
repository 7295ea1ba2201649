"""A crate while it is filled: entities by their identifiers, and files by their paths."""

import mimetypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rocrate.model.contextentity import ContextEntity
from rocrate.model.entity import Entity
from rocrate.rocrate import ROCrate

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem

# The validator knows this version.
VERSION = "1.1"
CONTEXT = "https://w3id.org/ro/terms/workflow-run/context"
# What files are that Python does not know by their names.
FORMATS = {
    ".md": "text/markdown",
    ".cff": "application/yaml",
    ".yaml": "application/yaml",
    ".toml": "application/toml",
    ".csv": "text/csv",
}
TEXT = "text/plain"


class Graph:
    """The entities of one crate, each added once; files have the paths that they have in the
    checkout, in whose folder this runs."""

    def __init__(self) -> None:
        self.crate = ROCrate(version=VERSION)
        self.crate.metadata.extra_contexts.append(CONTEXT)
        self._linked = dict[tuple[str, str], set[str]]()

    def add(self, name: str, kind: str, /, **properties: Any) -> Entity:
        """An entity that is no file; the one of that name, where there is one."""
        # Asked first: to look for what is not there goes through all that is.
        if name in self.crate:
            return self.crate.get(name)
        return self.crate.add(
            ContextEntity(self.crate, name, properties={"@type": kind, **properties})
        )

    def file(self, path: Path, /, **properties: Any) -> Entity:
        """A file of the tree, with its size and digest; a copy of it goes with the crate."""
        place = path.as_posix()
        if quote(place) in self.crate:
            return self.crate.get(quote(place))
        try:
            size, digest = str(path.stat().st_size), sha256(path)
        except OSError as error:
            raise Problem(
                f"{path} cannot be read ({error.strerror}); run this in the folder of the checkout"
            ) from None
        content = {
            "name": place,
            "encodingFormat": FORMATS.get(path.suffix) or mimetypes.guess_type(place)[0] or TEXT,
            "contentSize": size,
            "sha256": digest,
            **properties,
        }
        return self.crate.add_file(path, place, properties=content)

    def link(self, entity: Entity, key: str, others: Iterable[Entity]) -> None:
        """Let an entity name more others under a key, each once, in their order; what it names
        there is a list, and no one else adds to it."""
        names = entity.properties().setdefault(key, [])
        place = (entity.id, key)
        # Kept, as to look through the names for every link takes the square of their number.
        if place not in self._linked:
            self._linked[place] = {each["@id"] for each in names}
        known = self._linked[place]
        for other in others:
            if other.id not in known:
                known.add(other.id)
                names.append({"@id": other.id})

    def exemplify(self, parameter: Entity, examples: Iterable[Entity]) -> None:
        """Name what a parameter was given, on both sides."""
        given = list(examples)
        self.link(parameter, "workExample", given)
        for each in given:
            self.link(each, "exampleOfWork", [parameter])

    def simplify(self) -> None:
        """Let single values stand alone, as RO-Crate recommends; nothing is linked after this."""
        for entity in self.crate.get_entities():
            content = entity.properties()
            for key, value in content.items():
                if isinstance(value, list) and len(value) == 1:
                    content[key] = value[0]
