"""Digests of the code that a job's result depends on.

A stage reaches, by name, functions, classes and constants of the package from its `run` and its
settings. A digest leaves out comments, docstrings, annotations outside of classes, the text of a
`Problem`, and the engine. A module that does more than bind names counts as a whole for all that
import it. Names made at run time cannot be followed; tests keep them out of the package."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.checkout import PACKAGE, SOURCES
from ptq_dynamics.engine.syntax import WHOLE, Chain, Imports, Module, Part, parse, text_digest

ENGINE = f"{PACKAGE}.engine"
FILES = "[!.]*.py"  # without lock files of editors


class Node(NamedTuple):
    """A definition by its module and name, or a whole module."""

    module: str
    name: str


class Code(NamedTuple):
    """Digests of the code that a job reaches, by module, and the libraries that it imports."""

    modules: Mapping[str, str]
    libraries: frozenset[str]


class Program:
    """The sources of a package below `root`, each as it was when it was first read."""

    def __init__(self, root: Path = SOURCES, package: str = PACKAGE) -> None:
        self._package = package
        self._modules = dict[str, Module]()
        self.files = dict[str, Path]()
        for path in sorted((root / package).rglob(FILES)):
            *folders, stem = path.relative_to(root).with_suffix("").parts
            self.files[".".join(folders if stem == "__init__" else [*folders, stem])] = path

    def code(self, roots: Iterable[Node]) -> Code:
        """Return the digests and libraries of all definitions that `roots` reach."""
        nodes, libraries = self.reach(roots)
        texts = dict[str, list[str]]()
        for node in sorted(nodes):
            own = texts.setdefault(node.module.removeprefix(f"{self._package}."), [])
            own += [part.digest for part in self._parts(node)]
        digests = {module: text_digest(parts) for module, parts in texts.items()}
        return Code(digests, frozenset(libraries))

    def reach(self, roots: Iterable[Node]) -> tuple[set[Node], set[str]]:
        """Return all definitions that `roots` reach, and the libraries that these import."""
        nodes, libraries, waiting = set[Node](), set[str](), list(roots)
        while waiting:
            node = waiting.pop()
            if node in nodes:
                continue
            nodes.add(node)
            module = self.module(node.module)
            waiting += self._effects_of(node.module)
            # A whole module passes on what it imports.
            passed_on = [(e,) for e in module.imports] if node.name == WHOLE else [(WHOLE,)]
            for _, chains, local in self._parts(node):
                waiting += (e for name in self._needed(local) for e in self._effects_of(name))
                for base, *names in (*chains, *passed_on):
                    for source, within in module.imports.get(base, set()) | local.get(base, set()):
                        for target in self._follow(source, (*within, *names)):
                            if isinstance(target, Node):
                                waiting.append(target)
                            else:
                                libraries.add(target)
                    if base in module.defined:
                        waiting.append(Node(node.module, base))
        return nodes, libraries

    def _follow(self, source: str, names: Chain) -> Iterator[Node | str]:
        """Yield the definitions or libraries that names in a module mean; none for the engine."""
        while names and f"{source}.{names[0]}" in self.files:
            source, names = f"{source}.{names[0]}", names[1:]
        if source.split(".")[0] != self._package:
            yield source.split(".")[0]
        elif source in self.files and not _is_engine(source):
            module, name = self.module(source), names[0] if names else WHOLE
            further = module.imports.get(name, set())
            for place, within in further:
                yield from self._follow(place, (*within, *names[1:]))
            if name in module.defined or not further:
                yield Node(source, name if name in module.defined else WHOLE)

    def _needed(self, imports: Imports) -> set[str]:
        """Return the modules of the package that imports run, with their parents."""
        every = (target for targets in imports.values() for target in targets)
        return {e for place, names in every for e in self._packages(".".join((place, *names[:1])))}

    def _packages(self, name: str) -> set[str]:
        parts = name.split(".")
        return {".".join(parts[: n + 1]) for n in range(len(parts))} & self.files.keys()

    @cache
    def _effects_of(self, name: str) -> frozenset[Node]:
        """Return the modules with effects that the import of a module runs, but for the engine."""
        modules, waiting = set[str](), self._packages(name)
        while waiting:
            modules.add(module := waiting.pop())
            waiting |= self._needed(self.module(module).imports) - modules
        acting = (m for m in modules if self.module(m).has_effects and not _is_engine(m))
        return frozenset(Node(module, WHOLE) for module in acting)

    def module(self, name: str) -> Module:
        """Return a module; raises `Problem` if it is missing or no Python."""
        if name not in self.files:
            raise Problem(f"there is no workflow/{name.replace('.', '/')}.py; write it")
        if name not in self._modules:
            path = self.files[name]
            package = name if path.stem == "__init__" else name.rpartition(".")[0]
            self._modules[name] = parse(path, package)
        return self._modules[name]

    def _parts(self, node: Node) -> list[Part]:
        """Return the statements of a definition, or all of its module."""
        module = self.module(node.module)
        if node.name != WHOLE and node.name not in module.defined:
            raise Problem(f"{self.files[node.module]} has no {node.name}; write it there")
        is_whole = module.is_whole or node.name == WHOLE
        return [*map(module.part, module.statements if is_whole else module.defined[node.name])]


def _is_engine(module: str) -> bool:
    return f"{module}.".startswith(f"{ENGINE}.")


def roots(stage: str, settings: object) -> tuple[Node, ...]:
    """Return a stage's `run`, the classes of its settings, and the scripts of these classes."""
    nodes = {Node(f"{PACKAGE}.{stage}", "run")}
    waiting: list[object] = [settings]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, BaseModel) or is_dataclass(value):
            kind = type(value)
            nodes.add(Node(kind.__module__, kind.__qualname__.partition(".")[0]))
            nodes |= {Node(f"{PACKAGE}.{script}", WHOLE) for script in getattr(kind, "scripts", ())}
            names = "model_fields" if isinstance(value, BaseModel) else "__dataclass_fields__"
            waiting += [getattr(value, name) for name in getattr(kind, names)]
    return tuple(sorted(nodes))


@cache
def _read(state: tuple[tuple[Path, int, int], ...]) -> Program:
    return Program()


def program() -> Program:
    """Return the present sources. Unchanged sources are parsed once."""
    status = {path: path.stat() for path in sorted((SOURCES / PACKAGE).rglob(FILES))}
    return _read(tuple((path, s.st_mtime_ns, s.st_size) for path, s in status.items()))


def import_modules(modules: Iterable[str]) -> None:
    """Import modules of the package, without scripts, which run in other environments."""
    for name in modules:
        if ".foreign." not in name:
            import_module(f"{PACKAGE}.{name}")


_first = cache(program)


@cache
def planned(nodes: tuple[Node, ...]) -> Code:
    """Return the code that some definitions reach, in the sources at the first call."""
    return _first().code(nodes)
