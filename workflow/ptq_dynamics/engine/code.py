"""Digests of the code that a job's result depends on.

A stage reaches, by name, functions, classes and constants of the package from its `run` and its
settings. A digest leaves out comments, docstrings, annotations, texts of errors and the engine. It
cannot follow names made at run time; tests/unit/test_rooms.py keeps them out of the package."""

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.checkout import PACKAGE, SOURCES

ENGINE = f"{PACKAGE}.engine"
WHOLE = "*"  # everything that a module defines
FILES = "[!.]*.py"  # without lock files of editors
DIGITS = 12
LEFT_OUT = {"ctx", "kind", "type_comment", "type_ignores", "type_params"}
PROGRESS = {"say", "maybe", "note"}

Chain = tuple[str, ...]  # a dotted name
Import = tuple[str, Chain]  # a module, and names within it


class Node(NamedTuple):
    """A definition by its module and name, or a whole module."""

    module: str
    name: str


class Code(NamedTuple):
    """Digests of the code that a job reaches, by module, and the libraries that it imports."""

    modules: Mapping[str, str]
    libraries: frozenset[str]


class Module:
    """The definitions, imports and other statements of a module."""

    def __init__(self, tree: ast.Module) -> None:
        self.defined = dict[str, list[ast.stmt]]()
        self.imports = dict[str, Import]()
        self.effects = list[ast.stmt]()
        for statement in tree.body:
            match statement:
                case ast.Import() | ast.ImportFrom():
                    self.imports |= imported(statement)
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    self.defined.setdefault(name, []).append(statement)
                case ast.Expr(ast.Constant()) | ast.If(ast.Compare(ast.Name("__name__"))):
                    pass
                case _:
                    if not isinstance(statement, ast.Assign | ast.AnnAssign):
                        self.effects.append(statement)
                    # Assignments within `if` or `try` define names, too.
                    for name in assigned(statement):
                        self.defined.setdefault(name, []).append(statement)


def assigned(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement assigns to, at any depth."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (each for target in targets for each in ast.walk(target))
            yield from (each.id for each in names if isinstance(each, ast.Name))


def imported(statement: ast.Import | ast.ImportFrom) -> dict[str, Import]:
    """Return what the names stand for that an import binds."""
    found = dict[str, Import]()
    for alias in statement.names:
        if isinstance(statement, ast.ImportFrom):
            found[alias.asname or alias.name] = statement.module or "", (alias.name,)
        else:
            module = alias.name if alias.asname else alias.name.split(".")[0]
            found[alias.asname or module] = module, ()
    return found


class Program:
    """The sources of a package below `root`, each as it was when it was first read."""

    def __init__(self, root: Path = SOURCES, package: str = PACKAGE) -> None:
        self._package = package
        self._modules = dict[str, Module]()
        self._texts = dict[int, tuple[str, set[Chain], dict[str, Import]]]()
        self.files = dict[str, Path]()
        for path in sorted((root / package).rglob(FILES)):
            *folders, stem = path.relative_to(root).with_suffix("").parts
            self.files[".".join(folders if stem == "__init__" else [*folders, stem])] = path

    def code(self, roots: Iterable[Node]) -> Code:
        """Return the digests and libraries of all definitions that `roots` reach."""
        nodes, libraries = self.reach(roots)
        texts = dict[str, set[str]]()
        for node in sorted(nodes):
            own = texts.setdefault(node.module.removeprefix(f"{self._package}."), set())
            own |= {self._part(statement)[0] for statement in self._statements(node)}
        digests = {module: _digest(sorted(found)) for module, found in texts.items()}
        return Code(digests, frozenset(libraries))

    def reach(self, roots: Iterable[Node]) -> tuple[set[Node], set[str]]:
        """Return all definitions that `roots` reach, and the libraries that these import."""
        nodes, libraries, waiting = set[Node](), set[str](), list(roots)
        while waiting:
            node = waiting.pop()
            if node in nodes:
                continue
            nodes.add(node)
            module = self._module(node.module)
            for _, chains, local in map(self._part, self._statements(node)):
                imports = module.imports | local
                for base, *names in chains:
                    if base in imports:
                        source, within = imports[base]
                        match self._follow(source, (*within, *names)):
                            case Node() as found:
                                waiting.append(found)
                            case str(library):
                                libraries.add(library)
                    elif base in module.defined:
                        waiting.append(Node(node.module, base))
        return nodes, libraries

    def _follow(self, source: str, names: Chain) -> Node | str | None:
        """Return the definition or library that names in a module mean; None for the engine."""
        while names and f"{source}.{names[0]}" in self.files:
            source, names = f"{source}.{names[0]}", names[1:]
        if source.split(".")[0] != self._package:
            return source.split(".")[0]
        if f"{source}.".startswith(f"{ENGINE}.") or source not in self.files:
            return None
        module, name = self._module(source), names[0] if names else WHOLE
        if name in module.imports and name not in module.defined:
            further, within = module.imports[name]
            return self._follow(further, (*within, *names[1:]))
        return Node(source, name if name in module.defined else WHOLE)

    def _module(self, name: str) -> Module:
        if name not in self.files:
            raise Problem(f"there is no workflow/{name.replace('.', '/')}.py; write it")
        if name not in self._modules:
            self._modules[name] = Module(ast.parse(self.files[name].read_text(encoding="utf-8")))
        return self._modules[name]

    def _statements(self, node: Node) -> list[ast.stmt]:
        """Return the statements of a definition, and those that its module runs on import."""
        module = self._module(node.module)
        if node.name == WHOLE:
            return [*chain.from_iterable(module.defined.values()), *module.effects]
        if node.name not in module.defined:
            raise Problem(f"{self.files[node.module]} has no {node.name}; write it there")
        return [*module.defined[node.name], *module.effects]

    def _part(self, statement: ast.stmt) -> tuple[str, set[Chain], dict[str, Import]]:
        """Return a statement's digest, the dotted names in it, and its own imports."""
        if id(statement) not in self._texts:
            left = _Stripped().visit(statement)
            chains, local, waiting = set[Chain](), dict[str, Import](), [left]
            while waiting:
                node = waiting.pop()
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    pass  # a field may have the name of an imported module
                elif found := _chain(node):
                    chains.add(found)
                elif isinstance(node, ast.Import | ast.ImportFrom):
                    local |= imported(node)
                else:
                    waiting += ast.iter_child_nodes(node)
            self._texts[id(statement)] = _digest([_text(left)]), chains, local
        return self._texts[id(statement)]


class _Stripped(ast.NodeTransformer):
    """Removes docstrings, annotations, texts of errors and progress, which change no result."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        for each in ast.walk(node):
            if isinstance(each, ast.arg):
                each.annotation = None
            elif isinstance(each, ast.AnnAssign):
                each.annotation = ast.Constant(None)
        node.returns = None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        call = node.value
        names = _chain(call.func) or () if isinstance(call, ast.Call) else ()
        is_progress = names[-1:] and names[-1] in PROGRESS and "progress" in "".join(names[:-1])
        return None if isinstance(call, ast.Constant) or is_progress else self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        # Python 3.12 and later add an empty text at the end of nested formats.
        node.values = [each for each in node.values if getattr(each, "value", True)]
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)


def _chain(node: ast.AST) -> Chain | None:
    """Return the names of an expression such as `a.b.c`; None for any other."""
    names = list[str]()
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else None


def _text(node: Any) -> str:
    """Return a syntax tree as text, the same in all versions of Python, without empty parts."""
    if isinstance(node, ast.AST):
        fields = {name: _text(part) for name, part in ast.iter_fields(node) if name not in LEFT_OUT}
        parts = [f"{name}={text}" for name, text in fields.items() if text]
        return f"{type(node).__name__}({','.join(parts)})"
    if isinstance(node, list):
        return "[" + ",".join(map(_text, node)) + "]" if node else ""
    return "" if node is None else f"{type(node).__name__}:{node!r}"


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:DIGITS]


def roots(stage: str, settings: Any) -> tuple[Node, ...]:
    """Return a stage's `run`, the classes of its settings, and the scripts of these classes."""
    found = {Node(f"{PACKAGE}.{stage}", "run")}
    waiting = [settings]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, BaseModel) or is_dataclass(value):
            kind: Any = type(value)
            found.add(Node(kind.__module__, kind.__qualname__))
            found |= {Node(f"{PACKAGE}.{each}", WHOLE) for each in getattr(kind, "scripts", ())}
            names = kind.model_fields if isinstance(value, BaseModel) else kind.__dataclass_fields__
            waiting += [getattr(value, name) for name in names]
    return tuple(sorted(found))


@cache
def _read(state: tuple[tuple[Path, int, int], ...]) -> Program:
    return Program()


def program() -> Program:
    """Return the present sources. Unchanged sources are parsed once."""
    status = {path: path.stat() for path in sorted((SOURCES / PACKAGE).rglob(FILES))}
    return _read(tuple((path, s.st_mtime_ns, s.st_size) for path, s in status.items()))


def load(modules: Iterable[str]) -> None:
    """Import modules of the package, without scripts, which run in other environments."""
    for name in modules:
        if ".foreign." not in name:
            import_module(f"{PACKAGE}.{name}")


_first = cache(program)


@cache
def planned(found: tuple[Node, ...]) -> Code:
    """Return the code that some definitions reach, in the sources at the first call."""
    return _first().code(found)
