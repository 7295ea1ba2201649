"""What stages need, by a second and simpler way than fingerprints go: by what the interpreter would
look up, from compiled code."""

import ast
import dis
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from types import CodeType

from ptq_dynamics.engine.fingerprint import sources
from ptq_dynamics.engine.fingerprint.reach import Node

ENGINE = "ptq_dynamics.engine"
FILES = {name: ast.unparse(ast.parse(text)) for name, text in sources.on_disk().items()}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


def names_of(statement: ast.AST) -> list[str]:
    """Names that a statement of a module defines."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        found = [node for target in targets for node in ast.walk(target)]
        return [n.id for n in found if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return []


def reach(stage: str, selected: Iterable[str], acting: Iterable[Node]) -> set[Node]:
    """Definitions that a stage's job needs whose settings select some modules, whole, and in whose
    modules these statements run when they are imported."""
    waiting = [Node(stage, "run")]
    for module in selected:
        waiting += [Node(module, name) for name, found in bound(module).items() if is_own(found)]
        waiting += [n for name in bound(module) for n in meant(module, name)]
    for node in acting:
        tree = ast.parse(FILES[node.module])
        texts = [ast.unparse(n) for n in tree.body if isinstance(n, ast.If | ast.Expr)]
        used = chain.from_iterable(looked_up(compile(t, "", "exec")) for t in texts)
        waiting += [n for names in used for n in meant(node.module, *names)]
    seen = set[Node]()
    while waiting:
        node = waiting.pop()
        if node not in seen and not node.module.startswith(ENGINE):
            seen.add(node)
            waiting += needed(*node)
    return seen


def acts(node: Node) -> bool:
    """Whether a node is a statement that runs when its module is imported."""
    return node.name.startswith("(")


def is_own(found: object) -> bool:
    """Whether a name of a module stands for its own statements, and not for an import."""
    return isinstance(found, list)


def looked_up(code: CodeType) -> Iterator[tuple[str, ...]]:
    """Names that compiled code takes from its module, with the attributes that follow."""
    steps = list(dis.get_instructions(code))
    for number, step in enumerate(steps):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"):
            rest = steps[number + 1 :]
            end = next((n for n, s in enumerate(rest) if s.opname not in ATTRIBUTES), len(rest))
            yield (step.argval, *(s.argval for s in rest[:end]))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from looked_up(constant)


@cache
def bound(module: str) -> dict[str, object]:
    """What names of a module stand for: statements, or (module, name) of an import."""
    found: dict[str, object] = {}
    for statement in ast.parse(FILES[module]).body:
        match statement:
            case ast.ImportFrom(names=names, module=source):
                beside = f"{module.rpartition('.')[0]}.{source}"
                source = beside if beside in FILES and source not in FILES else source
                found |= {each.asname or each.name: (source, each.name) for each in names}
            case _:
                for name in names_of(statement):
                    found.setdefault(name, []).append(statement)
    return found


@cache
def needed(module: str, name: str) -> set[Node]:
    """The nodes that a definition names, in its code or in its annotations."""
    texts = [ast.unparse(each) for each in _own(module, name)]
    for statement in _own(module, name):
        hints = [n.annotation for n in ast.walk(statement) if isinstance(n, ast.AnnAssign)]
        hints += [n.annotation for n in ast.walk(statement) if isinstance(n, ast.arg)]
        hints += [n.returns for n in ast.walk(statement) if isinstance(n, FUNCTIONS)]
        texts += [ast.unparse(hint) for hint in hints if hint is not None]
        # Annotations as strings.
        words = [n.value for h in hints if h for n in ast.walk(h) if isinstance(n, ast.Constant)]
        texts += [word for word in words if isinstance(word, str) and word.isidentifier()]
    used = chain.from_iterable(looked_up(compile(text, module, "exec")) for text in texts)
    return {node for names in used for node in meant(module, *names)}


def meant(module: str, name: str, *attributes: str) -> Iterator[Node]:
    """The node that a name with attributes stands for, if it is one of the package."""
    found = bound(module).get(name)
    if isinstance(found, list):
        yield Node(module, name)
    elif found is not None:
        source, member = found
        if f"{source}.{member}" in FILES:
            if attributes:
                yield from meant(f"{source}.{member}", *attributes)
        elif source in FILES and not source.startswith(ENGINE):
            yield from meant(source, member, *attributes)


def _own(module: str, name: str) -> list[ast.stmt]:
    found = bound(module).get(name)
    return found if isinstance(found, list) else []
