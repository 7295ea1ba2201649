"""Canonical text of definitions: equal where they mean the same, on every Python version.

Not `ast.dump`, whose output differs between versions. Left out are docstrings, `pass`, annotations
of parameters, returns and local variables, literals of `Problem(...)`, and lines that tell of
progress or go to a log.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ptq_dynamics.engine.fingerprint import blocks
from ptq_dynamics.engine.fingerprint.left_out import (
    FUNCTIONS,
    is_harmless,
    names_in,
    strings,
    tells,
)
from ptq_dynamics.engine.fingerprint.references import (
    Dynamic,
    Import,
    Token,
    Use,
    Written,
    imports,
)
from ptq_dynamics.engine.fingerprint.scopes import Scope

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def write(statements: Sequence[ast.stmt], parent: str, known: Mapping[str, Import]) -> Written:
    """The text of statements at the top of a module; `parent` is its package, `known` what its
    imports bind."""
    writer = _Writer(parent, known)
    out: list[Token] = []
    top = Scope("module")
    for statement in statements:
        writer.node(statement, out, top)
    top.finish(out, writer.beside)
    beside: list[Token] = [token for token in writer.beside if not isinstance(token, str)]
    return Written(_joined(out), beside, writer.imports)


def _joined(tokens: Sequence[Token]) -> list[Token]:
    """The same with neighbouring texts in one."""
    found: list[Token] = []
    texts: list[str] = []
    for token in tokens:
        if isinstance(token, str):
            texts.append(token)
        else:
            found += ["\0".join(texts), token]
            texts = []
    return [*found, "\0".join(texts)]


class _Writer:
    """Writes nodes; `beside` collects references of annotations, `imports` those in functions."""

    def __init__(self, parent: str, known: Mapping[str, Import]) -> None:
        self.parent = parent
        self._known = known
        self._tells_problem = known.get("Problem", Import(""))[0].endswith(".problem")
        self._logs = known.get("logger") == Import("loguru", "logger")
        self.beside: list[Token] = []
        self.imports: list[Import] = []
        self._quiet = 0

    def node(self, node: Any, out: list[Token], scope: Scope) -> None:
        """Append the text of a node, a list of nodes, or a plain value."""
        kind = type(node)
        special = SPECIAL.get(kind)
        if special is not None:
            special(self, node, out, scope)
        elif kind is list:
            out.append("[")
            for item in node:
                length = len(out)
                self.node(item, out, scope)
                # Where a statement is left out, so is its place.
                if len(out) > length:
                    out.append(",")
            out.append("]")
        elif isinstance(node, ast.AST):
            out.append(kind.__name__ + "(")
            for field in kind._fields:
                value = getattr(node, field, None)
                if value is not None and value != [] and field != "ctx":
                    out.append(field + "=")
                    self.node(value, out, scope)
            out.append(")")
        else:
            out.append(ascii(node))

    def name(self, node: ast.Name, out: list[Token], scope: Scope) -> None:
        if isinstance(node.ctx, ast.Load):
            scope.meet(out, node.id)
        elif scope.kind in ("module", "class"):
            scope.bind(node.id)
            out.append(node.id)
        else:
            scope.bind(node.id)
            scope.meet(out, node.id)

    def attribute(self, node: ast.Attribute, out: list[Token], scope: Scope) -> None:
        names = names_in(node)
        if names:
            scope.meet(out, names[0], tuple(names[1:]))
        else:
            self.node(node.value, out, scope)
            out.append(f".{node.attr}")

    def constant(self, node: ast.Constant, out: list[Token], scope: Scope) -> None:
        if not self._quiet:
            out.append("=" + ascii(node.value))

    def joined(self, node: ast.JoinedStr, out: list[Token], scope: Scope) -> None:
        if self._quiet:
            for value in node.values:
                if isinstance(value, ast.FormattedValue):
                    self.node(value.value, out, scope)
            return
        out.append("JoinedStr(")
        text = ""
        # How neighbouring literals are cut differs between versions.
        for value in node.values:
            if isinstance(value, ast.Constant):
                text += str(value.value)
                continue
            if text:
                out.append("=" + ascii(text) + ",")
            text = ""
            self.node(value, out, scope)
            out.append(",")
        out.append(("=" + ascii(text) if text else "") + ")")

    def call(self, node: ast.Call, out: list[Token], scope: Scope) -> None:
        names = names_in(node)
        if self._imports(node.func):
            named = [each.value for each in node.keywords if each.arg == "name"]
            for each in [*node.args[:1], *named][:1]:
                self._imported(each, out)
        # Of who calls it for others, no text shows what.
        if any(map(self._imports, node.args)):
            out.append(Dynamic(""))
        is_problem = names == ["Problem"] and self._tells_problem
        out.append("Call(")
        self.node(node.func, out, scope)
        self._quiet += is_problem
        for argument in [*node.args, *node.keywords]:
            out.append(",")
            self.node(argument, out, scope)
        self._quiet -= is_problem
        out.append(")")

    def _imports(self, function: ast.expr) -> bool:
        """Whether a function imports a module by its name."""
        names = [] if isinstance(function, ast.Call) else names_in(function)
        is_alias = names[:1] and self._known.get(names[0]) == Import("importlib", "import_module")
        return names[-1:] in (["import_module"], ["__import__"]) or bool(is_alias)

    def _imported(self, name: ast.expr, out: list[Token]) -> None:
        """A module that is imported by a name made when it runs, as far as it is known."""
        match name:
            case ast.Constant(value=str(text)) if not text.startswith("."):
                out.append(Use(Import(text)))
                self.imports.append(Import(text))
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
                out.append(Dynamic("" if text.startswith(".") else text))
            case ast.Name(id="package") | ast.JoinedStr(values=[ast.FormattedValue(), *_]):
                pass  # components are found in their folders
            case _:
                out.append(Dynamic(""))

    def statement(self, node: ast.Expr, out: list[Token], scope: Scope) -> None:
        value = node.value
        if isinstance(value, ast.Call) and tells(names_in(value), self._logs):
            arguments = [*value.args, *(keyword.value for keyword in value.keywords)]
            self._quiet += 1
            for argument in arguments:
                if not all(map(is_harmless, ast.walk(argument))):
                    self.node(argument, out, scope)
            self._quiet -= 1
            return
        out.append("Expr(")
        self.node(value, out, scope)
        out.append(")")

    def nothing(self, node: ast.AST, out: list[Token], scope: Scope) -> None:
        pass

    def annotated(self, node: ast.AnnAssign, out: list[Token], scope: Scope) -> None:
        if scope.kind == "class":
            out.append("AnnAssign(")
            self.node(node.annotation, out, scope)
            self.follow(node.annotation, scope, only_strings=True)
        else:
            self.follow(node.annotation, scope)
            if node.value is None:
                return
            out.append("Assign(targets=[")
        self.node(node.target, out, scope)
        out += [",", "]value="]
        self.node(node.value, out, scope)
        out.append(")")

    def assign(self, node: ast.Assign, out: list[Token], scope: Scope) -> None:
        out.append("Assign(targets=[")
        for target in node.targets:
            self.node(target, out, scope)
            out.append(",")
        out.append("]value=")
        self.node(node.value, out, scope)
        out.append(")")

    def follow(self, annotation: ast.expr | None, scope: Scope, only_strings: bool = False) -> None:
        """Note what an annotation refers to; with `only_strings`, what its strings do alone."""
        if annotation is None:
            return
        if not only_strings:
            self.node(annotation, self.beside, scope)
        for node in () if isinstance(annotation, ast.Name) else strings(annotation):
            self.node(node, self.beside, scope)

    def comprehension(self, node: Any, out: list[Token], scope: Scope) -> None:
        inner = Scope("comprehension", scope)
        out.append(type(node).__name__ + "(")
        for number, part in enumerate(node.generators):
            self.node(part.iter, out, inner if number else scope)
            out.append(f" async{part.is_async} ")
            self.node(part.target, out, inner)
            self.node(part.ifs, out, inner)
        for field in ("key", "value", "elt"):
            if hasattr(node, field):
                self.node(getattr(node, field), out, inner)
                out.append(",")
        inner.finish(out, self.beside)
        out.append(")")

    def walrus(self, node: ast.NamedExpr, out: list[Token], scope: Scope) -> None:
        target: Scope | None = scope
        while target is not None and target.kind == "comprehension":
            target = target.around
        assert target is not None
        target.bind(node.target.id)
        out.append("NamedExpr(")
        scope.meet(out, node.target.id)
        self.node(node.value, out, scope)
        out.append(")")

    def import_(self, node: ast.Import | ast.ImportFrom, out: list[Token], scope: Scope) -> None:
        if isinstance(node, ast.Import):
            self.imports += [Import(alias.name) for alias in node.names]
        for bound, found in imports(node, self.parent):
            self.imports.append(found)
            if scope.kind in ("function", "comprehension"):
                scope.imports[bound] = found
            else:
                # In a class, or in a statement at the top of a module.
                scope.bind(bound)
                out.append(f"import {bound}=")
                out.append(Use(found))

    def global_(self, node: ast.Global, out: list[Token], scope: Scope) -> None:
        scope.of_module.update(node.names)

    def nonlocal_(self, node: ast.Nonlocal, out: list[Token], scope: Scope) -> None:
        scope.outer.update(node.names)
        out.append(f"Nonlocal({','.join(node.names)})")

    def binding(self, node: Any, out: list[Token], scope: Scope) -> None:
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        if name is not None:
            scope.bind(name)
        out.append(type(node).__name__ + "(")
        for field in type(node)._fields:
            value = getattr(node, field, None)
            if value is not None and value != []:
                out.append(field + "=")
                self.node(value, out, scope)
        out.append(")")


SPECIAL: dict[type, Callable[..., None]] = {
    ast.Name: _Writer.name,
    ast.Attribute: _Writer.attribute,
    ast.Constant: _Writer.constant,
    ast.JoinedStr: _Writer.joined,
    ast.Call: _Writer.call,
    ast.Expr: _Writer.statement,
    ast.Pass: _Writer.nothing,
    ast.AnnAssign: _Writer.annotated,
    ast.Assign: _Writer.assign,
    ast.Lambda: blocks.lambda_,
    ast.ClassDef: blocks.class_,
    ast.NamedExpr: _Writer.walrus,
    ast.Import: _Writer.import_,
    ast.ImportFrom: _Writer.import_,
    ast.Global: _Writer.global_,
    ast.Nonlocal: _Writer.nonlocal_,
    **dict.fromkeys(FUNCTIONS, blocks.function),
    **dict.fromkeys(COMPREHENSIONS, _Writer.comprehension),
    **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar), _Writer.binding),
    ast.MatchMapping: _Writer.binding,
}
