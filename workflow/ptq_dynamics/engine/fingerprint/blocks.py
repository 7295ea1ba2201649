"""Canonical text of functions and classes."""

import ast
from typing import Any, Protocol

from ptq_dynamics.engine.fingerprint.left_out import PLAIN, is_docstring, names_in, ordered
from ptq_dynamics.engine.fingerprint.references import Token
from ptq_dynamics.engine.fingerprint.scopes import Scope


class Writer(Protocol):
    """What writes the parts; `beside` collects references of annotations."""

    beside: list[Token]

    def node(self, node: Any, out: list[Token], scope: Scope) -> None:
        """Append the text of a node, a list of nodes, or a plain value."""

    def follow(self, annotation: ast.expr | None, scope: Scope, only_strings: bool = False) -> None:
        """Note what an annotation refers to."""


def function(
    writer: Writer, node: ast.FunctionDef | ast.AsyncFunctionDef, out: list[Token], scope: Scope
) -> None:
    """A function; what its annotations name is followed, but they do not count themselves."""
    scope.bind(node.name)
    out.append(f"{type(node).__name__} {node.name}(")
    writer.node(node.decorator_list, out, scope)
    asked = not all(names_in(d)[-1:] and names_in(d)[-1] in PLAIN for d in node.decorator_list)
    # The engine reads the annotations of a stage's `run`.
    asked = asked or (scope.kind == "module" and node.name == "run")
    _arguments(writer, node.args, out, scope, asked)
    writer.follow(node.returns, scope)
    inner = Scope("function", scope)
    _parameters(node.args, inner)
    _types(writer, node, out, inner)
    writer.node(_undocumented(node.body), out, inner)
    inner.finish(out, writer.beside)
    out.append(")")


def lambda_(writer: Writer, node: ast.Lambda, out: list[Token], scope: Scope) -> None:
    """A function without a name."""
    out.append("Lambda(")
    _arguments(writer, node.args, out, scope, False)
    inner = Scope("function", scope)
    _parameters(node.args, inner)
    writer.node(node.body, out, inner)
    inner.finish(out, writer.beside)
    out.append(")")


def _arguments(
    writer: Writer, arguments: ast.arguments, out: list[Token], scope: Scope, asked: bool
) -> None:
    single = [[each] if each else [] for each in (arguments.vararg, arguments.kwarg)]
    groups = [arguments.posonlyargs, arguments.args, single[0], arguments.kwonlyargs, single[1]]
    for group in groups:
        for each in group:
            out.append(each.arg + ",")
            if asked and each.annotation is not None:
                writer.node(each.annotation, out, scope)
                writer.follow(each.annotation, scope, only_strings=True)
            else:
                writer.follow(each.annotation, scope)
        out.append("/")
    for default in [*arguments.defaults, None, *arguments.kw_defaults]:
        writer.node(default, out, scope)
        out.append(",")


def _parameters(arguments: ast.arguments, scope: Scope) -> None:
    groups = [arguments.posonlyargs, arguments.args, arguments.kwonlyargs]
    singles = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    for each in [*(each for group in groups for each in group), *singles]:
        scope.bind(each.arg)


def _types(writer: Writer, node: Any, out: list[Token], scope: Scope) -> None:
    """Type parameters, which Python has from 3.12 on."""
    for each in getattr(node, "type_params", ()):
        scope.bind(each.name)
        writer.node(each, out, scope)


def class_(writer: Writer, node: ast.ClassDef, out: list[Token], scope: Scope) -> None:
    """A class, whole: a method may be called on an object of which no text names the class."""
    scope.bind(node.name)
    out.append(f"ClassDef {node.name}(")
    for part in (node.decorator_list, node.bases, node.keywords):
        writer.node(part, out, scope)
    inner = Scope("class", scope)
    _types(writer, node, out, inner)
    writer.node(ordered(_undocumented(node.body)), out, inner)
    inner.finish(out, writer.beside)
    out.append(")")


def _undocumented(statements: list[ast.stmt]) -> list[ast.stmt]:
    return statements[1:] if statements and is_docstring(statements[0]) else statements
