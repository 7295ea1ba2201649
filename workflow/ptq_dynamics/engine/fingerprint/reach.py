"""Which definitions are reached by name from a job's roots, and the digests of what they mean.

Pure functions of a mapping of sources: module name to text.
"""

import builtins
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ptq_dynamics.engine.fingerprint.definitions import Module, parsed
from ptq_dynamics.engine.fingerprint.digests import Digests
from ptq_dynamics.engine.fingerprint.references import Dynamic, Import, Raw, Token, Use

# What reads names that no text shows: then the whole module counts.
SEEING = {"globals", "eval", "exec", "__import__"}
OF_MODULE = {"__file__", "__name__", "__package__", "__path__", "__spec__", "__doc__"}
# All of a module; and all that it defines itself, without the modules that it imports.
WHOLE, OWN = "*", "*own"


class Node(NamedTuple):
    """A definition by its module and name, an effect by its number, or a module (WHOLE, OWN)."""

    module: str
    name: str


class Found(NamedTuple):
    """What a reference means: a node and the attributes after it, or text alone; and the library
    that it is from."""

    node: Node | None
    text: str
    library: str | None = None


@dataclass
class Reached:
    """The nodes reached from some roots, the modules that are loaded for them, and the libraries
    that they import."""

    nodes: set[Node] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    libraries: set[str] = field(default_factory=set)


class Program:
    """The sources of a package whose engine, the modules below `engine`, does not count."""

    def __init__(self, sources: Mapping[str, str], engine: str) -> None:
        self._sources, self._engine = sources, engine
        self._packages = {name.rpartition(".")[0] for name in sources}
        self._tops = {name.split(".")[0] for name in sources}
        self._links: dict[Node, tuple[list[str | Node], set[Node], set[str], list[Import]]] = {}
        self._own: dict[Node, Mapping[str, str]] = {}
        self._prefixes: dict[Node, list[str]] = {}
        self._digests = Digests(lambda node: self._link(node)[0])

    def has(self, module: str, name: str | None = None) -> bool:
        """Whether there is such a module, with such a definition."""
        return module in self._sources and (name is None or name in self._module(module).names)

    def is_script(self, module: str) -> bool:
        """Whether a module lies outside of packages, so that another process runs it."""
        return module.rpartition(".")[0] not in {*self._sources, ""}

    def reach(self, roots: Iterable[Node]) -> Reached:
        """All that the roots reach. A module that is a root answers every import by a name made
        when it runs that could mean it."""
        reached, roots = Reached(), list(roots)
        declared = [node.module for node in roots if node.name == OWN]
        waiting: list[Node] = []

        def load(module: str) -> None:
            fresh = [module]
            while fresh:
                name = fresh.pop()
                if name in reached.modules or self._is_engine(name) or name not in self._sources:
                    continue
                reached.modules.add(name)
                fresh += self._loaded_with(name)
                waiting.extend(Node(name, effect) for effect in self._module(name).effects)
                reached.libraries |= self._wanted_for_effect(name)

        def come_to(node: Node) -> None:
            waiting.append(node)
            load(node.module)

        for root in roots:
            come_to(root)
        while waiting:
            node = waiting.pop()
            if node in reached.nodes:
                continue
            reached.nodes.add(node)
            _, others, libraries, imported = self._link(node)
            reached.libraries |= libraries
            for other in others:
                come_to(other)
            for each in imported:
                for name in self._modules_of(each, node.module):
                    load(name)
            for prefix in self._prefixes.get(node, ()):
                known = [name for name in declared if name.startswith(prefix)]
                for name in known or self._beginning_with(prefix):
                    come_to(Node(name, OWN))
        return reached

    def digest(self, node: Node) -> str:
        """Digest of all that a node means, wherever in the package the parts of it stand."""
        return self._digests.whole(node)

    def combined(self, roots: Iterable[Node], nodes: Iterable[Node]) -> str:
        """Digest of what roots and all that they reach mean."""
        parts = [*map(self.digest, roots), "", *sorted(map(self.digest, nodes))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def own(self, node: Node) -> Mapping[str, str]:
        """Digest of the text of a node, in which others are names; of a class also that of every
        method, as CLASS.METHOD."""
        if node not in self._own:
            parts, *_ = self._link(node)
            names = (part if isinstance(part, str) else f"@{part.name}" for part in parts)
            self._own[node] = {node.name: _digest(names), **self._methods(node)}
        return self._own[node]

    def _methods(self, node: Node) -> dict[str, str]:
        found = self._module(node.module).methods(node.name)
        return {
            f"{node.name}.{method}": _digest(self._names(written.tokens, node.module))
            for method, written in found.items()
        }

    def _names(self, tokens: Iterable[Token], module: str) -> Iterator[str]:
        """A text with names in the place of references, wherever what they mean stands."""
        for token in tokens:
            if isinstance(token, Use):
                found = self._resolve(token, module)
                yield f"@{found.node.name if found.node else ''}"
                yield found.text
            elif isinstance(token, str):
                yield token

    def _module(self, name: str) -> Module:
        return parsed(name, self._sources[name], name in self._packages)

    def _is_engine(self, module: str) -> bool:
        return module == self._engine or module.startswith(self._engine + ".")

    def _beginning_with(self, prefix: str) -> list[str]:
        return [n for n in self._sources if n.startswith(prefix) and not self._is_engine(n)]

    def _loaded_with(self, name: str) -> Iterator[str]:
        if "." in name:
            yield name.rpartition(".")[0]
        for each in self._module(name).imports:
            yield from self._modules_of(each, name)

    def _modules_of(self, found: Import, importer: str) -> Iterator[str]:
        source = self._absolute(found.module, importer)
        yield source
        yield source.rpartition(".")[0]
        if found.name is not None:
            yield f"{source}.{found.name}"

    def _is_module(self, found: Import, importer: str) -> bool:
        """Whether an import binds a module of the package."""
        source = self._absolute(found.module, importer)
        if found.name is None:
            return source in self._sources
        known = self._module(source).names.get(found.name) if source in self._sources else None
        return f"{source}.{found.name}" in self._sources and known is None

    def _absolute(self, module: str, importer: str) -> str:
        # A script outside of packages finds what lies beside it.
        folder = importer.rpartition(".")[0]
        beside = f"{folder}.{module}"
        return beside if folder not in self._sources and beside in self._sources else module

    def _wanted_for_effect(self, name: str) -> set[str]:
        """Libraries that a module imports and never names, so for what their import does."""
        return {each.split(".")[0] for each in self._module(name).unused} - self._tops

    def _link(self, node: Node) -> tuple[list[str | Node], set[Node], set[str], list[Import]]:
        """Of a node: its parts with references put in, what it reaches, its libraries, and what
        it imports when it runs."""
        if node in self._links:
            return self._links[node]
        parts: list[str | Node] = []
        others: set[Node] = set()
        libraries: set[str] = set()
        imported: list[Import] = []

        def add(token: Token, counts: bool) -> None:
            if isinstance(token, Use):
                found = self._resolve(token, node.module)
                if found.node is not None:
                    others.add(found.node)
                    if counts:
                        parts.append(found.node)
                if counts:
                    parts.append(found.text)
                if found.library is not None:
                    libraries.add(found.library)
            elif isinstance(token, Dynamic):
                self._prefixes.setdefault(node, []).append(token.prefix)
            elif counts:
                assert not isinstance(token, Raw)
                parts.append(token)

        if node.name in (WHOLE, OWN):
            module = self._module(node.module)
            parts.append("whole module")
            for name, bound in sorted(module.names.items(), key=lambda each: each[0]):
                parts.append(name)
                imports = isinstance(bound, Import) and self._is_module(bound, node.module)
                if node.name == WHOLE or not imports:
                    add(Use(name), True)
            for star in module.stars:
                add(Use(Import(star)), True)
        else:
            written = self._module(node.module).written(node.name)
            for token in written.tokens:
                add(token, True)
            for token in written.beside:
                add(token, False)
            imported = written.imports
        self._links[node] = (parts, others, libraries, imported)
        return self._links[node]

    def _resolve(self, use: Use, module: str) -> Found:
        if isinstance(use.base, Import):
            return self._imported(use.base, use.attributes, module)
        return self._named(use.base, use.attributes, module)

    def _named(self, name: str, attributes: tuple[str, ...], module: str) -> Found:
        here = self._module(module)
        found = here.names.get(name)
        if isinstance(found, Import):
            return self._imported(found, attributes, module)
        if found is not None:
            return Found(Node(module, name), _dotted(attributes))
        if name in OF_MODULE:
            return Found(None, _dotted((f"{module}:{name}", *attributes)))
        if hasattr(builtins, name):
            if name in SEEING:
                return Found(Node(module, WHOLE), name)
            return Found(None, _dotted((name, *attributes)))
        for star in here.stars:
            source = self._absolute(star, module)
            if source in self._sources and not self._is_engine(source):
                return Found(Node(source, WHOLE), _dotted((name, *attributes)))
            return Found(None, _dotted((name, *attributes)), source.split(".")[0])
        return Found(None, _dotted((name, *attributes)))

    def _imported(self, found: Import, attributes: tuple[str, ...], importer: str) -> Found:
        source, name = self._absolute(found.module, importer), found.name
        if self._is_engine(source):
            # Where in the engine it lies does not count.
            names = () if name is None or f"{source}.{name}" in self._sources else (name,)
            return Found(None, "engine:" + _dotted((*names, *attributes)))
        if source.split(".")[0] not in self._tops:
            text = _dotted((source, *([name] if name else []), *attributes))
            # Modules of others are told by the names they are reached by.
            seen = Node(importer, WHOLE) if text.startswith("sys.modules") else None
            return Found(seen, f"library:{text}", source.split(".")[0])
        if name is not None:
            return self._member(source, name, attributes)
        if not attributes:
            return self._whole(source)
        return self._member(source, attributes[0], attributes[1:])

    def _member(self, module: str, name: str, attributes: tuple[str, ...]) -> Found:
        within = f"{module}.{name}"
        known = self._module(module).names.get(name) if module in self._sources else None
        # A package that imports a module of its own has no other of this name.
        own = (
            isinstance(known, Import)
            and known.name == name
            and self._absolute(known.module, module) == module
        )
        if known is not None and not own:
            return self._named(name, attributes, module)
        if within in self._sources or within in self._packages:
            return self._imported(Import(within), attributes, module)
        if module in self._sources:
            if self._module(module).stars:
                return self._named(name, attributes, module)
            return Found(Node(module, WHOLE), _dotted((name, *attributes)))
        return Found(None, _dotted((within, *attributes)))

    def _whole(self, module: str) -> Found:
        if module in self._sources:
            return Found(Node(module, WHOLE), "")
        return Found(None, module)


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _dotted(names: Iterable[str]) -> str:
    return ".".join(names)
