"""The shape of the package: rooms in one order, no name twice, few lines."""

import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest
from ptq_dynamics.engine.syntax import acts
from support import ROOT, python

PACKAGE = ROOT / "workflow/ptq_dynamics"
# Each imports only from those before it.
ROOMS = [
    "base",
    "models",
    "engine",
    "hub",
    "corpus",
    "trajectories",
    "train",
    "quantize",
    "measure",
    "curvature",
]
ROOMS += ["figures", "claims", "paper", "config", "plan", "provenance", "report", "cli"]
# Lines at most, by what git lists: lower a number when the count falls, raise it to mend a fault.
BUDGETS = {
    "package and rules": (["workflow/*.py", "workflow/*.smk", "*Snakefile"], 23_623),
    "tests": (["tests"], 15_311),
    "docs": (["docs/*.md"], 800),
    "make": (["Makefile"], 90),
}
LONGEST_MODULE = 350


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py")}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def used(name: str) -> Iterator[str]:
    """Modules of the package that a module imports, anywhere in its text."""
    parent = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(TREES[name]):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name in MODULES)
            case ast.ImportFrom(module=module, names=names, level=level):
                source = resolve_name("." * level + (module or ""), parent) if level else module
                members = [f"{source}.{each.name}" for each in names]
                yield from (m for m in members if m in MODULES)
                if source in MODULES and not all(m in MODULES for m in members):
                    yield source


USES = {name: set(used(name)) - {name} for name in MODULES}


def test_a_room_imports_only_from_rooms_before_it():
    upward = [
        f"{name} uses {other}"
        for name, others in sorted(USES.items())
        for other in sorted(others)
        # The package itself offers what is in its rooms, and imports it when it is used.
        if room(name) and room(other) and ROOMS.index(room(other)) > ROOMS.index(room(name))
    ]
    assert not upward, "\n".join(upward)


def test_no_module_imports_itself_through_others():
    try:
        TopologicalSorter(USES).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("module", ["ptq_dynamics.plan", "ptq_dynamics.cli"])
def test_what_every_start_imports_is_light(module):
    heavy = "{'torch', 'transformers', 'matplotlib', 'pandas', 'scipy', 'datasets'}"
    done = python(["-c", f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"], ROOT)
    assert done.stdout == "[]\n", done.stderr


def test_no_module_is_long():
    lengths = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert not {name: count for name, count in lengths.items() if count > LONGEST_MODULE}


@pytest.mark.parametrize("what", BUDGETS)
def test_there_are_few_lines(what):
    patterns, most = BUDGETS[what]
    listed = ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in names.splitlines() if (ROOT / name).exists()]
    if what == "tests":
        paths = [path for path in paths if path.suffix == ".py"]
    count = sum(len(path.read_text().splitlines()) for path in paths)
    print(f"{what}: {count:,} lines of {most:,}")
    assert count <= most, f"{count:,} lines of {what}, and {most:,} at most"


def test_a_function_or_class_has_its_name_once():
    """But for what is called with its module, and for verbs, which have the names of their work."""
    places, common = defaultdict(set), {"run", "main", "load", "read", "describe"}
    for name in (name for name in TREES if room(name) != "cli"):
        for node in TREES[name].body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] not in "_":
                places[node.name].add(name)
    assert not {name: own for name, own in places.items() if len(own) > 1 and name not in common}


def test_importing_a_module_binds_names_and_does_nothing_else():
    """But for programs. The process that runs several jobs imports the modules of all."""
    programs = ("engine.", "quantize.foreign.", "cli.__main__")
    shaping = [
        name for name in TREES if not name.removeprefix("ptq_dynamics.").startswith(programs)
    ]
    found = [(name, e.lineno) for name in shaping for e in TREES[name].body if acts(e)]
    assert not found
