"""Modules as digests of code read them: which names they bind, and their statements without what
changes no result."""

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from importlib.util import resolve_name
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ptq_dynamics.base.problem import Problem

WHOLE = "*"  # everything in a module, or the names that `import *` binds
UNNAMED = ""  # stands for modules that are imported without a name of their own
DIGITS = 12
LEFT_OUT = {"ctx", "kind", "type_comment", "type_ignores", "type_params"}
RELATIVE = re.compile(rb"from\s*\.")
# Functions that constants are made with, and that do no more.
PURE = {
    *("abs", "bool", "bytes", "cache", "compile", "dict", "dtype", "enumerate", "field", "fields"),
    *(
        "filter",
        "float",
        "frozenset",
        "fromkeys",
        "full",
        "getattr",
        "int",
        "items",
        "join",
        "keys",
    ),
    *("len", "list", "map", "max", "min", "partial", "product", "range", "replace", "reversed"),
    *("round", "set", "sorted", "str", "sum", "timedelta", "tuple", "values", "zip"),
}
PROGRESS = {"say", "maybe", "note"}
BODY = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | ast.comprehension
BINDING = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.Pass
TARGET = ast.Name | ast.Tuple | ast.List | ast.Starred | ast.expr_context

Chain = tuple[str, ...]  # a dotted name
Imports = dict[str, set[tuple[str, Chain]]]  # by name: modules, and names within them


class Part(NamedTuple):
    """The digest of a statement, the dotted names in it, and its own imports."""

    digest: str
    chains: set[Chain]
    imports: Imports


class Module:
    """What a module defines and imports. It counts as a whole if its import has effects beside
    binding names, or if it binds a name twice, because the order of statements matters then."""

    def __init__(self, tree: ast.Module) -> None:
        self.statements = [each for each in tree.body if not is_silent(each)]
        self.defined, self.imports = dict[str, list[ast.stmt]](), Imports()
        for statement in self.statements:
            for node in scope(statement):
                add_imports(node, self.imports)
                if name := _defined(node):
                    self.defined.setdefault(name, []).append(statement)
        self.has_effects = any(map(acts, self.statements))
        names = {*self.defined, *self.imports} - {UNNAMED}
        bound = (len(self.defined.get(e, ())) + len(self.imports.get(e, ())) for e in names)
        self.is_whole = self.has_effects or any(count > 1 for count in bound)
        self._parts = dict[int, Part]()

    def part(self, statement: ast.stmt) -> Part:
        """Return what a digest of code takes from one of the module's statements."""
        if id(statement) not in self._parts:
            self._parts[id(statement)] = _part(statement)
        return self._parts[id(statement)]


def parse(path: Path, package: str) -> Module:
    """Return a module with absolute imports; `package` has it, or is it. Raises `Problem`."""
    try:
        tree = ast.parse(text := path.read_bytes())
        for node in ast.walk(tree) if RELATIVE.search(text) else ():
            if isinstance(node, ast.ImportFrom) and node.level:
                node.module = resolve_name("." * node.level + (node.module or ""), package)
                node.level = 0
    except (SyntaxError, ValueError, ImportError) as error:
        raise Problem(f"{path} is no Python ({error}); correct it") from None
    return Module(tree)


def is_silent(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring, sets a level of logging, or only serves types."""
    match node:
        case ast.Expr(ast.Constant()) | ast.If(ast.Name("TYPE_CHECKING"), orelse=[]):
            return True
        case ast.Expr(ast.Call(ast.Attribute(logger, "setLevel"))):
            return ast.unparse(logger).startswith("logging.getLogger(")
    return False


def acts(node: ast.stmt) -> bool:
    """Return whether a statement may do more than bind names of its own module or class."""
    match node:
        case ast.Assign() | ast.AnnAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for target in targets for part in ast.walk(target)]
            if not all(isinstance(each, TARGET) for each in parts):
                return True
            calls = scope(node.value) if node.value else ()
            names = [dotted(each.func) for each in calls if isinstance(each, ast.Call)]
            # Classes have capital letters. Any other function may act.
            return any(name and name[-1][0].islower() and name[-1] not in PURE for name in names)
        case ast.ImportFrom(names=[ast.alias("*")]):
            return True
        case ast.ClassDef():
            return any(map(acts, node.body))
    return not isinstance(node, BINDING) and not is_silent(node)


def scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, except those within functions and classes."""
    waiting = [node]
    while waiting:
        yield (each := waiting.pop())
        waiting += () if isinstance(each, BODY) else ast.iter_child_nodes(each)


def _defined(node: ast.AST) -> str | None:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.Name(ctx=ast.Store()):
            return node.id
    return None


def add_imports(node: ast.AST, found: Imports) -> None:
    """Add what the names stand for that an import binds; other nodes add none."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            found.setdefault(name, set()).add((alias.name if alias.asname else name, ()))
            found.setdefault(UNNAMED, set()).add((alias.name, ()))
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            within = () if alias.name == WHOLE else (alias.name,)
            found.setdefault(alias.asname or alias.name, set()).add((node.module or "", within))


def dotted(node: ast.AST) -> Chain | None:
    """Return the names of an expression such as `a.b.c`; None for any other."""
    names = list[str]()
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else None


def _part(statement: ast.stmt) -> Part:
    left = _Stripped().visit(statement) or ast.Pass()
    chains, imports, waiting = set[Chain](), Imports(), [left]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            pass  # a field may have the name of an imported module
        elif found := dotted(node):
            chains.add(found)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            add_imports(node, imports)
        else:
            waiting += ast.iter_child_nodes(node)
            if isinstance(node, ast.ClassDef):
                own = Imports()  # attributes of the class
                for each in chain.from_iterable(map(scope, node.body)):
                    add_imports(each, own)
                chains |= {(name,) for name in own}
    return Part(digest([_text(left)]), chains, imports)


class _Stripped(ast.NodeTransformer):
    """Removes docstrings, annotations, texts of errors and progress, which change no result."""

    _of_class = False  # whether a statement is one of a class, where annotations define fields

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._body(node, of_class=True)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._body(node, of_class=False)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self._body(node, of_class=False)

    def _body(self, node: ast.AST, *, of_class: bool) -> ast.AST:
        before, self._of_class = self._of_class, of_class
        self.generic_visit(node)
        self._of_class = before
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        if self._of_class:
            return node
        return ast.Assign([node.target], node.value) if node.value else None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        call = node.value
        names = dotted(call.func) or () if isinstance(call, ast.Call) else ()
        is_progress = names[-1:] and names[-1] in PROGRESS and "progress" in "".join(names[:-1])
        return None if isinstance(call, ast.Constant) or is_progress else self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        # Python 3.12 and later add an empty text at the end of nested formats.
        node.values = [each for each in node.values if getattr(each, "value", True)]
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        # Code may catch and read any other exception.
        if isinstance(node.exc, ast.Call) and dotted(node.exc.func) == (Problem.__name__,):
            node.exc = node.exc.func
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)


def _text(node: Any) -> str:
    """Return a syntax tree as text, the same in all versions of Python, without empty parts."""
    if isinstance(node, ast.AST):
        fields = {name: _text(part) for name, part in ast.iter_fields(node) if name not in LEFT_OUT}
        parts = [f"{name}={text}" for name, text in fields.items() if text]
        return f"{type(node).__name__}({','.join(parts)})"
    if isinstance(node, list):
        return "[" + ",".join(map(_text, node)) + "]" if node else ""
    return "" if node is None else f"{type(node).__name__}:{node!r}"


def digest(parts: Iterable[str]) -> str:
    """Return a short digest of texts in their order."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:DIGITS]
