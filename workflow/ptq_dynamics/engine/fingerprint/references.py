"""What the text of a definition refers to, before anything is known of other modules."""

import ast
from collections.abc import Iterable
from typing import NamedTuple


class Import(NamedTuple):
    """What an import binds: a module, or a name in it (which may be a module too)."""

    module: str
    name: str | None = None


class Use(NamedTuple):
    """A name of the module, or what an import in a function binds, with attributes after it."""

    base: str | Import
    attributes: tuple[str, ...] = ()


class Dynamic(NamedTuple):
    """An import whose module is known when it runs; its name begins with `prefix`."""

    prefix: str


class Raw(NamedTuple):
    """A name of which it is not known yet whether it is local to a function."""

    name: str
    attributes: tuple[str, ...]


Token = str | Use | Dynamic | Raw


class Written(NamedTuple):
    """A definition: its canonical text in parts, what it refers to beside (annotations, which do
    not count themselves), and what it imports when it runs."""

    tokens: list[Token]
    beside: list[Token]
    imports: list[Import]


def imported(name: str, parent: str, level: int) -> str:
    """Absolute name of a module; `parent` is the package that a relative import starts from."""
    if not level:
        return name
    package = parent.split(".")[: len(parent.split(".")) - level + 1]
    return ".".join([*package, *([name] if name else [])])


def imports(node: ast.Import | ast.ImportFrom, parent: str) -> Iterable[tuple[str, Import]]:
    """What an import binds, by name; a star has none and is left out."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            if alias.name != "*":
                source = imported(node.module or "", parent, node.level)
                yield alias.asname or alias.name, Import(source, alias.name)
        elif alias.asname:
            yield alias.asname, Import(alias.name)
        else:
            yield alias.name.split(".")[0], Import(alias.name.split(".")[0])
