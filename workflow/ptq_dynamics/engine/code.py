"""Digests of the code that a job's result depends on.

A stage reaches, by name, functions, classes and constants of the package from its `run` and its
settings. Comments, docstrings, annotations, texts of errors and the engine are left out. Names made
at run time and effects of an import are not seen; tests/unit/test_rooms.py keeps them out of the
package."""

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.checkout import PACKAGE, SOURCES

ENGINE = f"{PACKAGE}.engine"
WHOLE = "*"  # all that a module defines
FILES = "[!.]*.py"  # but no editor's lock of a file
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
    """Digests of what a job reaches, by module below the package, and the libraries it imports."""

    modules: Mapping[str, str]
    libraries: frozenset[str]


class Module:
    """What the top level of a module binds, and what else it does."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.defined = dict[str, list[ast.stmt]]()
        self.imports = dict[str, Import]()
        self.effects = list[ast.stmt]()
        for statement in tree.body:
            match statement:
                case ast.Import() | ast.ImportFrom():
                    self.imports |= dict(imported(statement))
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    self.defined.setdefault(name, []).append(statement)
                case ast.Expr(value=ast.Constant()):
                    pass
                case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                    pass
                case _:
                    if not isinstance(statement, ast.Assign | ast.AnnAssign):
                        self.effects.append(statement)
                    # Also within another, as where a type checker is told another thing; else the
                    # module would count as a whole for whoever takes that name.
                    for name in assigned(statement):
                        self.defined.setdefault(name, []).append(statement)


def assigned(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement assigns to, wherever in it."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (each for target in targets for each in ast.walk(target))
            yield from (each.id for each in names if isinstance(each, ast.Name))


def imported(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Import]]:
    """Names that an import binds, and what they stand for."""
    for alias in statement.names:
        if isinstance(statement, ast.ImportFrom):
            yield alias.asname or alias.name, (statement.module or "", (alias.name,))
        else:
            module = alias.name if alias.asname else alias.name.split(".")[0]
            yield alias.asname or module, (module, ())


class Program:
    """The sources of a package below `root`, as they stand on disk when they are first read."""

    def __init__(self, root: Path = SOURCES, package: str = PACKAGE) -> None:
        self._package = package
        self._modules = dict[str, Module]()
        self._texts = dict[int, tuple[str, set[Chain], dict[str, Import]]]()
        self.files = dict[str, Path]()
        for path in sorted((root / package).rglob(FILES)):
            *folders, stem = path.relative_to(root).with_suffix("").parts
            self.files[".".join(folders if stem == "__init__" else [*folders, stem])] = path

    def code(self, roots: Iterable[Node]) -> Code:
        """The code that some definitions reach."""
        nodes, libraries = self.reach(roots)
        texts = dict[str, set[str]]()
        for node in sorted(nodes):
            own = texts.setdefault(node.module.removeprefix(f"{self._package}."), set())
            own |= {self._part(statement)[0] for statement in self._statements(node)}
        digests = {module: _digest(sorted(found)) for module, found in texts.items()}
        return Code(digests, frozenset(libraries))

    def reach(self, roots: Iterable[Node]) -> tuple[set[Node], set[str]]:
        """All definitions that some reach, and the libraries that these import."""
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
                        found = self._follow(source, (*within, *names))
                        waiting += [found] if isinstance(found, Node) else []
                        libraries |= {found} if isinstance(found, str) else set()
                    elif base in module.defined:
                        waiting.append(Node(node.module, base))
        return nodes, libraries

    def _follow(self, source: str, names: Chain) -> Node | str | None:
        """The definition, or the library, that names in a module mean; None if the engine's."""
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
        """The statements of a definition, and what its module does when it is imported."""
        module = self._module(node.module)
        if node.name == WHOLE:
            return [*(each for found in module.defined.values() for each in found), *module.effects]
        if node.name not in module.defined:
            raise Problem(f"{self.files[node.module]} has no {node.name}; write it there")
        return [*module.defined[node.name], *module.effects]

    def _part(self, statement: ast.stmt) -> tuple[str, set[Chain], dict[str, Import]]:
        """Digest of a statement, the dotted names in it, and the names that it imports itself."""
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
                    local |= dict(imported(node))
                else:
                    waiting += ast.iter_child_nodes(node)
            self._texts[id(statement)] = _digest([_text(left)]), chains, local
        return self._texts[id(statement)]


class _Stripped(ast.NodeTransformer):
    """Leaves out what changes no result: docstrings, annotations, texts of errors, progress."""

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
        # Python 3.12 and later have an empty text at the end of nested formats.
        empty = [each for each in node.values if isinstance(each, ast.Constant) and not each.value]
        node.values = [each for each in node.values if each not in empty]
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)


def _chain(node: ast.AST) -> Chain | None:
    """A dotted name, `a.b.c`; None for all else."""
    names = list[str]()
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else None


def _text(node: Any) -> str:
    """A syntax tree as text that is the same on all versions of Python, without empty parts."""
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
    """A stage's `run`, the classes that its settings are made of, and the scripts of these."""
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
            is_model = isinstance(value, BaseModel)
            names = kind.model_fields if is_model else kind.__dataclass_fields__
            waiting += [getattr(value, name) for name in names]
    return tuple(sorted(found))


@cache
def _read(state: tuple[tuple[Path, int, int], ...]) -> Program:
    return Program()


def program() -> Program:
    """The sources as they are now; what was parsed of the same sources before is kept."""
    status = {path: path.stat() for path in sorted((SOURCES / PACKAGE).rglob(FILES))}
    return _read(tuple((path, s.st_mtime_ns, s.st_size) for path, s in status.items()))


def load(modules: Iterable[str]) -> None:
    """Import modules of the package, but no script, as these run in other environments."""
    for name in modules:
        if ".foreign." not in name:
            import_module(f"{PACKAGE}.{name}")


_first = cache(program)  # for all that this process plans


@cache
def planned(found: tuple[Node, ...]) -> Code:
    """The code that some definitions reach, by the sources when this process first asked."""
    return _first().code(found)
