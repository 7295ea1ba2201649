"""Edits of every definition of this project, in memory: none is missed, none counts needlessly."""

import ast
import os
import random
from collections.abc import Callable

import pytest
from ptq_dynamics.engine.fingerprint import sources
from ptq_dynamics.engine.fingerprint.reach import OWN, WHOLE, Node, Program
from reachability import ENGINE, FILES, FUNCTIONS, acts, names_of, reach

pytestmark = pytest.mark.slow

PROGRAM = Program(FILES, ENGINE)
# Of jobs; what several processes run for one does not count.
STAGES = [
    name
    for name, text in FILES.items()
    if "\ndef run(context: Context[" in text and name != "ptq_dynamics.train.ranks"
]
OPTIMIZERS = "ptq_dynamics.train.optimizers"
ARCHITECTURES = "ptq_dynamics.train.architectures"
OBJECTIVES = "ptq_dynamics.train.objectives"
SELECTED = {
    "ptq_dynamics.train.train": [
        *(f"{OPTIMIZERS}.{n}" for n in ("adamc", "adamw_independent", "ademamix")),
        *(f"{ARCHITECTURES}.{n}" for n in ("gpt_neox", "olmo2")),
        *(f"{OBJECTIVES}.{n}" for n in ("language", "answers", "preferences")),
    ],
    "ptq_dynamics.quantize.worker": [
        f"ptq_dynamics.quantize.foreign.{tool}_worker" for tool in ("gptqmodel", "autogptq")
    ],
}


def roots(stage):
    return [Node(stage, "run"), *(Node(name, OWN) for name in SELECTED.get(stage, ()))]


REACHED = {stage: PROGRAM.reach(roots(stage)).nodes for stage in STAGES}
ALL = set().union(*REACHED.values())


def digest(program, stage):
    return program.combined(roots(stage), program.reach(roots(stage)).nodes)


# Edits; each changes a node in place and says whether it did.


def asks(function):
    return function.name == "run" or bool(function.decorator_list)


def hints_of_parameters(node):
    if not isinstance(node, FUNCTIONS) or asks(node):
        return False
    hinted = [each for each in node.args.args if each.annotation]
    for each in hinted:
        each.annotation = ast.BinOp(each.annotation, ast.BitOr(), ast.Name("object"))
    node.returns = node.returns and ast.BinOp(node.returns, ast.BitOr(), ast.Name("object"))
    return bool(hinted or node.returns)


def hints_of_locals(node):
    if not isinstance(node, FUNCTIONS):
        return False
    shared = {n for each in ast.walk(node) if isinstance(each, ast.Global) for n in each.names}
    found = False
    for number, each in enumerate(node.body):
        match each:
            case ast.Assign(targets=[ast.Name(id=name) as target]) if name not in shared:
                node.body[number] = ast.AnnAssign(target, ast.Name("object"), each.value, 1)
                found = True
    return found


def retold(call):
    texts = [n for n in ast.walk(call) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    for each in texts:
        each.value += "!"
    return bool(texts)


def error_texts(node):
    problem = isinstance(node, ast.Call) and ast.unparse(node.func) == "Problem"
    return problem and retold(node)


def progress_texts(node):
    told = isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-2:-1] == ["progress"]
    return told and any([retold(each) for each in node.args])


def progress_lines(node):
    """All of them are left out, so none may do what matters besides."""
    found = False
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        if isinstance(statements, list):
            kept = [each for each in statements if not tells_progress(each)]
            found = found or len(kept) < len(statements)
            statements[:] = kept if kept or not statements else [ast.Pass()]
    return found


def tells_progress(statement):
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return is_call and ast.unparse(statement.value.func).split(".")[-2:-1] == ["progress"]


def docstrings(node):
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module)) and ast.get_docstring(node):
        node.body[0].value.value += "!"
        return True
    return False


def new_functions(node):
    if isinstance(node, ast.Module):
        node.body += ast.parse("def _new(x):\n    return x").body
        return True
    return False


def order(node):
    if not isinstance(node, ast.Module | ast.ClassDef):
        return False
    plain = [n for n in node.body if isinstance(n, FUNCTIONS) and not n.decorator_list]
    places = [node.body.index(each) for each in plain]
    for place, each in zip(places, reversed(plain), strict=True):
        node.body[place] = each
    return len(plain) > 1


def relative_imports(node):
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ptq_dynamics."):
        # Counted from the module that it stands in, as `mutated` says.
        node.module, node.level = node.module.removeprefix("ptq_dynamics."), -1
        return True
    return False


NEEDLESS = [
    *(hints_of_parameters, hints_of_locals, error_texts, progress_texts, docstrings),
    *(progress_lines, new_functions, order, relative_imports),
]


def bodies(node):
    if isinstance(node, FUNCTIONS):
        node.body.append(ast.Assert(ast.Constant(True)))
    return isinstance(node, FUNCTIONS)


def defaults(node):
    if isinstance(node, FUNCTIONS):
        node.args.kwonlyargs.append(ast.arg("_new"))
        node.args.kw_defaults.append(ast.Constant(1))
    return isinstance(node, FUNCTIONS)


def decorators(node):
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        node.decorator_list.append(ast.Name("staticmethod"))
    return isinstance(node, (*FUNCTIONS, ast.ClassDef))


def bases(node):
    if isinstance(node, ast.ClassDef):
        node.bases.insert(0, ast.Name("dict"))
    return isinstance(node, ast.ClassDef)


def fields(node):
    hinted = isinstance(node, ast.ClassDef) and [
        n for n in node.body if isinstance(n, ast.AnnAssign)
    ]
    for each in hinted or ():
        each.annotation = ast.BinOp(each.annotation, ast.BitOr(), ast.Constant(None))
    return bool(hinted)


def constants(node):
    assigned = isinstance(node, ast.Module) and [n for n in node.body if isinstance(n, ast.Assign)]
    for each in assigned or ():
        each.value = ast.Tuple([each.value, ast.Constant(1)])
    return bool(assigned)


MEANT = [bodies, defaults, decorators, bases, fields, constants]


def mutated(edit: Callable[[ast.AST], bool], wanted: Callable[[Node], bool] = lambda _: True):
    """The sources with an edit of all wanted definitions, and those that it changed."""
    files, changed = {}, set()
    for name, text in FILES.items():
        tree = ast.parse(text)
        is_package = any(other.startswith(f"{name}.") for other in FILES)
        for statement in list(tree.body):
            own = names_of(statement)
            if own and not wanted(Node(name, own[0])):
                continue
            touched = [edit(node) for node in list(ast.walk(statement))]
            if any(touched) and own and not name.startswith(ENGINE):
                changed |= {Node(name, each) for each in own}
            elif any(touched):
                changed.add(Node(name, ""))
        if edit is constants:
            for statement in tree.body:
                own = names_of(statement) if isinstance(statement, ast.Assign) else []
                if own and wanted(Node(name, own[0])) and not name.startswith(ENGINE):
                    edit(ast.Module([statement], []))
                    changed |= {Node(name, each) for each in own}
        elif wanted(Node(name, "")) and edit(tree):
            changed.add(Node(name, ""))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == -1:
                node.level = name.count(".") + (1 if is_package else 0)
        files[name] = ast.unparse(ast.fix_missing_locations(tree))
    return files, changed


def test_layout_changes_nothing():
    disk = Program(sources.on_disk(), ENGINE)
    assert [digest(disk, stage) for stage in STAGES] == [digest(PROGRAM, stage) for stage in STAGES]


@pytest.mark.parametrize("edit", NEEDLESS, ids=lambda edit: edit.__name__)
def test_no_edit_without_a_meaning_counts(edit):
    files, changed = mutated(edit)
    program = Program(files, ENGINE)
    assert len(changed) > 5
    single = {node for node in ALL if node.name not in (WHOLE, OWN)}
    different = {node for node in single if program.own(node) != PROGRAM.own(node)}
    assert not different
    if edit is not new_functions:
        assert [s for s in STAGES if digest(program, s) != digest(PROGRAM, s)] == []
    else:
        # A module that settings select counts whole.
        assert {s for s in STAGES if digest(program, s) != digest(PROGRAM, s)} <= set(SELECTED)


@pytest.mark.parametrize("edit", MEANT, ids=lambda edit: edit.__name__)
def test_every_edit_with_a_meaning_counts(edit):
    files, changed = mutated(edit)
    program = Program(files, ENGINE)
    reached = changed & ALL
    assert len(reached) > 5
    assert not {node for node in reached if program.own(node) == PROGRAM.own(node)}


def functions_beside_others():
    """Definitions that hold several functions, as classes do, with each of these by number."""
    for name, text in FILES.items():
        for statement in ast.parse(text).body:
            own = [Node(name, each) for each in names_of(statement)]
            found = [each for each in ast.walk(statement) if isinstance(each, FUNCTIONS)]
            if len(found) > 1 and not ALL.isdisjoint(own):
                yield from ((own[0], number) for number in range(len(found)))


@pytest.mark.parametrize("edit", [bodies, defaults, decorators], ids=lambda edit: edit.__name__)
def test_an_edit_of_every_single_function_counts(edit):
    """Where a definition holds several, one could hide that another does not count."""
    missed, tried = [], 0
    for node, number in functions_beside_others():
        tree = ast.parse(FILES[node.module])
        statement = next(each for each in tree.body if node.name in names_of(each))
        function = [each for each in ast.walk(statement) if isinstance(each, FUNCTIONS)][number]
        assert edit(function)
        text = ast.unparse(ast.fix_missing_locations(tree))
        program = Program({**FILES, node.module: text}, ENGINE)
        tried += 1
        if program.own(node) == PROGRAM.own(node):
            missed.append((node, function.name))
    assert tried > 50
    assert not missed


def test_no_edit_of_what_is_not_reached_counts():
    """Of some stages, unless all edits are asked for."""
    seed = int(os.environ.get("EDITS_SEED") or random.SystemRandom().randrange(10**6))
    few = len(STAGES) if os.environ.get("EDITS") == "all" else 12
    for stage in random.Random(seed).sample(STAGES, few):
        for edit in (bodies, constants):
            files, changed = mutated(edit, lambda node, stage=stage: node not in REACHED[stage])
            assert len(changed) > 5
            same = digest(Program(files, ENGINE), stage) == digest(PROGRAM, stage)
            assert same, f"{stage}: {edit.__name__} (EDITS_SEED={seed})"


@pytest.mark.parametrize("stage", STAGES)
def test_no_definition_counts_that_nothing_needs(stage):
    seen = reach(stage, SELECTED.get(stage, ()), filter(acts, REACHED[stage]))
    counted = {node for node in REACHED[stage] if node.name not in (WHOLE, OWN) and not acts(node)}
    assert not (more := counted - seen), more
    missed = seen - counted
    assert not missed
