"""The definitions at the top of a module, by name, and what it does when it is imported."""

import ast
import builtins
import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import chain

from ptq_dynamics.engine.fingerprint.canonical import write
from ptq_dynamics.engine.fingerprint.left_out import FUNCTIONS, PLAIN, is_docstring, names_in
from ptq_dynamics.engine.fingerprint.references import Import, Written, imported, imports

# Calls of what these modules and Python itself have make a value and change nothing else.
PURE = {
    *("abc", "collections", "contextlib", "dataclasses", "decimal", "enum", "fractions"),
    *("functools", "itertools", "math", "operator", "pathlib", "pydantic", "re", "string"),
    *("types", "typing"),
}
VALUES = {"dtype", "device"}
IMPURE = {"exec", "eval", "setattr", "delattr", "print", "input", "open", "__import__", "next"}
# What calls a function that it is given.
CALLING = {"map", "filter", "reduce", "starmap", "accumulate", "sorted", "min", "max"}
# Methods of strings, paths, mappings and sequences that change nothing.
READING = {
    *("items", "keys", "values", "get", "split", "join", "format", "resolve", "absolute"),
    *("joinpath", "with_name", "strip", "lower", "upper", "copy", "union"),
}

WORD = re.compile(r"\w+")
COMMENT = re.compile(r"\"{3}.*?\"{3}|#[^\n]*", re.DOTALL)


class Module:
    """A parsed module. `names` has what each name is bound to, an import or the statements that
    define it; `effects` the statements that do something when the module is imported, by a name
    for each; `imports` what it imports then, `stars` what it imports all names of, and `unused`
    what it imports and never names."""

    def __init__(self, name: str, text: str, is_package: bool) -> None:
        self.name, self.parent = name, name if is_package else name.rpartition(".")[0]
        self.names: dict[str, Import | list[ast.stmt]] = {}
        self.effects: dict[str, list[ast.stmt]] = {}
        self.imports: list[Import] = []
        self.stars: list[str] = []
        self._written: dict[str, Written] = {}
        statements = ast.parse(text, filename=name).body
        for statement in statements:
            self._read(statement, runs=True)
        self._known = {n: found for n, found in self.names.items() if isinstance(found, Import)}
        for name, found in self.names.items():
            if not isinstance(found, Import) and any(map(self._has_effect, found)):
                self.effects[name] = found
        self.unused = self._unused(statements, text)

    def written(self, name: str) -> Written:
        """The text of what defines a name, or of an effect."""
        if name not in self._written:
            found = self.names.get(name) or self.effects[name]
            assert not isinstance(found, Import)
            self._written[name] = write(found, self.parent, self._known)
        return self._written[name]

    def methods(self, name: str) -> dict[str, Written]:
        """The text of every method of a class, by its name; of nothing else."""
        found = self.names.get(name)
        bodies = [each.body for each in found or () if isinstance(each, ast.ClassDef)]
        methods: dict[str, list[ast.stmt]] = {}
        for each in chain.from_iterable(bodies):
            if isinstance(each, FUNCTIONS):
                methods.setdefault(each.name, []).append(each)
        return {each: write(text, self.parent, self._known) for each, text in methods.items()}

    def _read(self, statement: ast.stmt, runs: bool) -> None:
        match statement:
            case ast.Import() | ast.ImportFrom():
                self._import(statement, runs)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._define(statement.name, statement)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if _plain_targets(statement):
                for name in _bound(statement):
                    self._define(name, statement)
            case ast.If(test=test, orelse=[]) if names_in(test)[-1:] == ["TYPE_CHECKING"]:
                for inner in statement.body:
                    self._read(inner, runs=False)
            case ast.Pass():
                pass
            case ast.Expr() if isinstance(statement.value, ast.Constant):
                pass
            case _:
                self.effects[f"({len(self.effects) + 1})"] = [statement]
                for name in _bound(statement):
                    self._define(name, statement)
                self._import_within(statement)

    def _define(self, name: str, statement: ast.stmt) -> None:
        found = self.names.get(name)
        if isinstance(found, list):
            found.append(statement)
        else:
            self.names[name] = [statement]

    def _import(self, statement: ast.Import | ast.ImportFrom, runs: bool) -> None:
        if runs:
            self._import_within(statement)
        for bound, found in imports(statement, self.parent):
            if isinstance(self.names.get(bound, found), Import):
                self.names[bound] = found
            else:
                self._define(bound, statement)

    def _import_within(self, statement: ast.stmt) -> None:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                self.imports += [Import(alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                source = imported(node.module or "", self.parent, node.level)
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.append(source)
                    self.imports.append(Import(source, alias.name))

    def _unused(self, statements: list[ast.stmt], text: str) -> list[str]:
        lines = text.splitlines()
        for statement in statements:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
                lines[first:last] = [""] * (last - first)
        # Several times as fast as a walk through the tree. Too few words are found where a string
        # holds a quote or a number sign, which makes more count, never less.
        words = set(WORD.findall(COMMENT.sub("", "\n".join(lines))))
        return [found.module for name, found in sorted(self._known.items()) if name not in words]

    def _has_effect(self, statement: ast.stmt, inner: Collection[str] = ()) -> bool:
        """Whether a statement at the top of the module, or in a class that binds the names `inner`,
        may do more than bind names."""
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                hints = [each.annotation for each in _parameters(statement.args)]
                evaluated = [*_defaults(statement.args), *hints, statement.returns]
                return self._acts(statement.decorator_list, evaluated, inner)
            case ast.ClassDef():
                keywords = [keyword.value for keyword in statement.keywords]
                own = {*inner, *chain.from_iterable(map(_bound, statement.body))}
                body = [each for each in statement.body if not is_docstring(each)]
                return self._acts(
                    statement.decorator_list, [*statement.bases, *keywords], inner
                ) or any(self._acts_in_class(each, own) for each in body)
        return self._acts([], [statement], inner)

    def _acts_in_class(self, statement: ast.stmt, inner: Collection[str]) -> bool:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return self._has_effect(statement, inner)
            case ast.Assign() | ast.AnnAssign():
                return not _plain_targets(statement) or self._acts([], [statement], inner)
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return False
        return True

    def _acts(
        self,
        decorators: Iterable[ast.expr],
        evaluated: Iterable[ast.AST | None],
        inner: Collection[str],
    ) -> bool:
        """Whether decorators, or a call in what is evaluated, may do more than make a value."""
        decorators = list(decorators)
        given = chain.from_iterable(map(_given, decorators))
        parts = map(_evaluated, filter(None, (*evaluated, *given)))
        calls = [each for each in chain.from_iterable(parts) if isinstance(each, ast.Call)]
        return not all(self._is_pure(each, inner) for each in (*decorators, *calls))

    def _is_pure(self, called: ast.expr, inner: Collection[str] = ()) -> bool:
        """Whether a call or a decorator makes a value and nothing else, as far as is known; the
        names `inner` are those of the class that it stands in."""
        names = names_in(called)
        calls = names[-1:] and names[-1] in CALLING
        if calls and any(self._acts_if_called(each) for each in _given(called)):
            return False
        if not names:
            function = called.func if isinstance(called, ast.Call) else called
            return isinstance(function, ast.Attribute) and function.attr in READING
        first, found = names[0], self.names.get(names[0])
        if isinstance(found, Import):
            # A class of a library, by its name, makes a value.
            makes = names[-1] in VALUES or names[-1][:1].isupper()
            return found.module.split(".")[0] in PURE or names[-1] in PLAIN or makes
        if first in inner:
            # A method of a value of the class, as `setter` is.
            return len(names) > 1 and names[-1] in PLAIN | READING
        if found is None:
            return hasattr(builtins, first) and first not in IMPURE
        # A constant's method, or a class here: no class of the package acts when it is called.
        return (
            names[-1] in READING
            or names[-1] in PLAIN
            or all(isinstance(each, ast.ClassDef) for each in found)
        )

    def _acts_if_called(self, given: ast.expr) -> bool:
        """Whether what is given to who may call it is a function that may act."""
        if isinstance(given, ast.Lambda):
            return self._acts([], [given.body], ())
        names = [] if isinstance(given, ast.Call) else names_in(given)
        found = self.names.get(names[0]) if names else None
        if isinstance(found, Import):
            return not self._is_pure(given)
        if found is None:
            return bool(names) and names[0] in IMPURE
        kinds = (*FUNCTIONS, ast.ClassDef) if len(names) > 1 else FUNCTIONS
        return any(isinstance(each, kinds) for each in found)


@cache
def parsed(name: str, text: str, is_package: bool) -> Module:
    """A module by its text; an equal text is parsed once in a process."""
    return Module(name, text, is_package)


def _plain_targets(statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return not any(
        isinstance(node, ast.Attribute | ast.Subscript)
        for target in targets
        for node in ast.walk(target)
    )


def _bound(statement: ast.stmt) -> Sequence[str]:
    """Names that a statement at the top of a module binds."""
    found: list[str] = []
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.append(node.name)
                continue
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                continue
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                found.append(name)
            case ast.Import() | ast.ImportFrom():
                found += [name for name, _ in imports(node, "")]
            case ast.ExceptHandler(name=str(name)):
                found.append(name)
        waiting += ast.iter_child_nodes(node)
    return list(dict.fromkeys(found))


def _given(called: ast.expr) -> list[ast.expr]:
    """The arguments of a call; none of what is no call."""
    if not isinstance(called, ast.Call):
        return []
    return [*called.args, *(keyword.value for keyword in called.keywords)]


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *filter(None, arguments.kw_defaults)]


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*named, *filter(None, (arguments.vararg, arguments.kwarg))]


def _evaluated(part: ast.AST) -> Sequence[ast.AST]:
    """What a statement or an expression evaluates when it runs: not the bodies of functions."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [part]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if isinstance(node, ast.Lambda):
            waiting += _defaults(node.args)
        else:
            waiting += ast.iter_child_nodes(node)
    return found
