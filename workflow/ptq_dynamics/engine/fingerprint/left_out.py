"""What does not count in a definition: telling of progress, docstrings, the order of methods."""

import ast
from collections.abc import Iterable, Sequence

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Ends of what tells of progress: progress.say(...), self._progress.log.write(...).
TELLING = {("say",), ("maybe",), ("note",), ("log", "write"), ("log", "flush")}
PROGRESS = ("progress", "_progress")
LOGGING = {
    *("trace", "debug", "info", "success", "warning", "error", "critical", "exception", "log"),
    *("disable", "enable"),
}
# What may be called in the arguments of such a line, which is then left out.
HARMLESS = {"abs", "float", "format", "int", "len", "max", "min", "repr", "round", "str"}
# Decorators that read no annotations of a function, and do not care for the order of methods.
PLAIN = {
    *("property", "cached_property", "setter", "getter", "deleter", "staticmethod", "classmethod"),
    *("cache", "lru_cache", "abstractmethod", "contextmanager", "override", "no_grad", "wraps"),
    "overload",
}


def names_in(decorator: ast.expr) -> list[str]:
    """The dotted name of a decorator or of what is called; empty where it is no name."""
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def is_docstring(statement: ast.stmt) -> bool:
    """Whether a statement is a string and nothing else."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def tells(names: Sequence[str], logs: bool) -> bool:
    """Whether a call by this dotted name tells of progress or, where `logs`, goes to loguru."""
    for name in PROGRESS:
        if name in names[:-1]:
            return tuple(names[names.index(name) + 1 :]) in TELLING
    return logs and len(names) == 2 and names[0] == "logger" and names[1] in LOGGING


def is_harmless(node: ast.AST) -> bool:
    """Whether a node, without what is in it, can change nothing when it is evaluated."""
    if isinstance(node, ast.Call):
        names = names_in(node)
        joins = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant)
        return joins or (len(names) == 1 and names[0] in HARMLESS)
    return not isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom)


def strings(annotation: ast.expr) -> Iterable[ast.expr]:
    """Annotations that are written as strings, but for those of `Literal`."""
    waiting: list[ast.AST] = [annotation]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Subscript) and names_in(node.value)[-1:] == ["Literal"]:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                yield ast.parse(node.value, mode="eval").body
            except SyntaxError:
                continue
        waiting += ast.iter_child_nodes(node)


def ordered(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements of a class, then its plain methods by name, whose order does not count."""
    methods = [each for each in body if isinstance(each, FUNCTIONS) and _is_plain(each)]
    others = [each for each in body if not (isinstance(each, FUNCTIONS) and _is_plain(each))]
    return [*others, *sorted(methods, key=lambda each: each.name)]


def _is_plain(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return all({*names_in(each)[-1:]} & PLAIN for each in method.decorator_list)
