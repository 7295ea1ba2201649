"""Modules as digests of code read them: which names they bind, and their statements without what
changes no result."""

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from importlib.util import resolve_name
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ptq_dynamics.base.problem import Problem

WHOLE = "*"  # everything in a module, or the names that `import *` binds
UNNAMED = ""  # stands for modules that are imported without a name of their own
DIGITS = 12
LEFT_OUT = {"ctx", "kind", "type_comment", "type_ignores", "type_params"}
RELATIVE = re.compile(rb"from\s*\.")
# Functions and decorators that change nothing outside of the name that they bind.
PURE = {
    *("abs", "bool", "bytes", "compile", "dict", "dtype", "enumerate", "field", "fields", "float"),
    *("frozenset", "fromkeys", "full", "getattr", "int", "items", "join", "keys", "len", "list"),
    *("max", "min", "product", "range", "replace", "resolve", "reversed", "round", "set", "sorted"),
    *("str", "sum", "timedelta", "tuple", "values", "with_name", "zip"),
    *("abstractmethod", "cache", "cached_property", "classmethod", "contextmanager", "dataclass"),
    *("lru_cache", "model_validator", "no_grad", "once_differentiable", "property", "staticmethod"),
}
PROGRESS = {"say", "maybe", "note"}
DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
BINDING = ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom | ast.Pass
# What runs later than the statement that has it, or binds names of its own.
LATER = {ast.ClassDef: {"body"}, ast.Lambda: {"body"}, ast.comprehension: {"target"}}
LATER |= {ast.arg: {"annotation"}, ast.AnnAssign: {"annotation"}}
LATER |= {kind: {"body", "returns"} for kind in (ast.FunctionDef, ast.AsyncFunctionDef)}

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
        self.statements = [statement for statement in tree.body if not is_silent(statement)]
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
    if not isinstance(node, BINDING | DEFINITION):
        return not is_silent(node)
    body = node.body if isinstance(node, ast.ClassDef) else []
    return any(map(acts, body)) or any(map(_may_act, scope(node)))


def _may_act(node: ast.AST) -> bool:
    match node:
        case ast.alias("*") | ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
            return True
        case ast.Call(called):
            return not _is_pure(called)
    decorators = getattr(node, "decorator_list", [])
    return not all(isinstance(d, ast.Call) or _is_pure(d) for d in decorators)


def _is_pure(called: ast.expr) -> bool:
    """Return whether a call only returns a value. Names of classes have capital letters."""
    while isinstance(called, ast.Subscript):
        called = called.value
    name = getattr(called, "attr", getattr(called, "id", ""))
    return name in PURE or (name[:1].isupper() and not name.isupper())


def scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it that runs with it and binds names where it does."""
    waiting = [node]
    while waiting:
        yield (inner := waiting.pop())
        later = LATER.get(type(inner), ())
        for name, part in ast.iter_fields(inner):
            parts = part if isinstance(part, list) else [part]
            waiting += (p for p in parts if name not in later and isinstance(p, ast.AST))


def _defined(node: ast.AST) -> str | None:
    if isinstance(node, DEFINITION):
        return node.name
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None


def add_imports(node: ast.AST, imports: Imports) -> None:
    """Add what the names stand for that an import binds; other nodes add none."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            imports.setdefault(name, set()).add((alias.name if alias.asname else name, ()))
            imports.setdefault(UNNAMED, set()).add((alias.name, ()))
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            within = () if alias.name == WHOLE else (alias.name,)
            imports.setdefault(alias.asname or alias.name, set()).add((node.module or "", within))


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
        elif names := dotted(node):
            chains.add(names)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            add_imports(node, imports)
        else:
            waiting += ast.iter_child_nodes(node)
            if isinstance(node, ast.ClassDef):
                own = Imports()  # attributes of the class
                for inner in chain.from_iterable(map(scope, node.body)):
                    add_imports(inner, own)
                chains |= {(name,) for name in own}
    return Part(text_digest([_text(left)]), chains, imports)


class _Stripped(ast.NodeTransformer):
    """Removes docstrings, annotations, texts of errors and progress, which change no result."""

    def __init__(self) -> None:
        self._fields = set[ast.AST]()  # statements of classes, where annotations define fields

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._fields.update(chain.from_iterable(map(scope, node.body)))
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        if node in self._fields:
            return node
        return ast.Assign([node.target], node.value) if node.value else None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        call = node.value
        names = dotted(call.func) or () if isinstance(call, ast.Call) else ()
        is_progress = names[-1:] and names[-1] in PROGRESS and "progress" in "".join(names[:-1])
        return None if isinstance(call, ast.Constant) or is_progress else self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        # Python 3.12 and later add an empty text at the end of nested formats.
        node.values = [value for value in node.values if getattr(value, "value", True)]
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        # Code may catch and read any other exception.
        if isinstance(node.exc, ast.Call) and dotted(node.exc.func) == (Problem.__name__,):
            node.exc = node.exc.func
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)


def _text(node: object) -> str:
    """Return a syntax tree as text, the same in all versions of Python, without empty parts."""
    if isinstance(node, ast.AST):
        fields = {name: _text(part) for name, part in ast.iter_fields(node) if name not in LEFT_OUT}
        parts = [f"{name}={text}" for name, text in fields.items() if text]
        return f"{type(node).__name__}({','.join(parts)})"
    if isinstance(node, list):
        return "[" + ",".join(map(_text, node)) + "]" if node else ""
    return "" if node is None else f"{type(node).__name__}:{node!r}"


def text_digest(parts: Iterable[str]) -> str:
    """Return a short digest of texts in their order."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:DIGITS]
