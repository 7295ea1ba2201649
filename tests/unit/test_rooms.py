"""The rooms of the package, and that none uses what lies above it."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest
from support import ROOT, python

PACKAGE = ROOT / "workflow/ptq_dynamics"

# What every room may use of the others; whatever is left out, it may not.
BASE = {"base"}
ENGINE = {*BASE, "engine"}
MAY_USE = {
    "base": set(),
    "models": BASE,
    "engine": BASE,
    "hub": ENGINE,
    "corpus": {*ENGINE, "hub"},
    "train": {*ENGINE, "models", "hub", "corpus"},
    "measure": {*ENGINE, "models", "corpus", "train"},
    "quantize": {*ENGINE, "models", "corpus", "train", "measure"},
    "curvature": {*ENGINE, "models", "corpus", "train", "measure"},
    "figures": {*ENGINE, "train", "measure", "curvature"},
    "claims": {*ENGINE, "train", "measure", "figures"},
    "paper": {*ENGINE, "measure", "figures", "claims"},
    "config": {*BASE, "hub", "corpus", "train", "quantize", "measure", "figures", "claims"},
    "graph": {
        *ENGINE,
        "config",
        *("hub", "corpus", "train", "measure", "quantize", "curvature", "figures", "claims"),
        "paper",
    },
    "provenance": {
        *ENGINE,
        *("config", "graph", "train", "measure", "curvature", "figures", "claims", "paper"),
    },
    "report": {
        *ENGINE,
        *("config", "graph", "train", "figures", "claims", "paper", "provenance"),
    },
    "cli": {
        *ENGINE,
        *("config", "graph", "hub", "measure", "claims", "paper", "provenance", "report"),
        # To measure their speeds.
        *("models", "corpus", "train", "quantize"),
    },
}
# What rooms of stages may use of the engine, so that it never shapes a result.
OF_THE_ENGINE = {"context", "manifest", "processes"}
STAGES = {"hub", "corpus", "train", "measure", "quantize", "curvature", "figures", "claims"}
STAGES |= {"paper"}
# What the paper tells is in part how its inputs were made.
OF_RECORDS = {"record", "paths"}


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


def used(name: str) -> Iterator[str]:
    """Modules of the package that a module imports, anywhere in its text."""
    path = MODULES[name]
    parent = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name in MODULES)
            case ast.ImportFrom(module=module, names=names, level=level):
                source = resolve_name("." * level + (module or ""), parent) if level else module
                members = [f"{source}.{each.name}" for each in names]
                yield from (m for m in members if m in MODULES)
                if source in MODULES and not all(m in MODULES for m in members):
                    yield source


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


USES = {name: set(used(name)) - {name} for name in MODULES}


def arrows() -> Iterator[tuple[str, str]]:
    for name, others in USES.items():
        for other in others:
            if room(name) != room(other) and room(other):
                yield name, other


def circle(graph: dict[str, set[str]]) -> str:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return ""


def test_every_room_is_known_and_there_are_few():
    top = {path.stem for path in PACKAGE.iterdir()} - {"__init__", "__pycache__"}
    assert top == set(MAY_USE)
    assert len(top) <= 18
    assert set().union(*MAY_USE.values()) <= top


def test_what_rooms_may_use_has_no_circle():
    assert not circle(MAY_USE)
    assert circle({**MAY_USE, "base": {"graph"}}) != ""


def test_no_room_uses_what_it_may_not():
    found = list(arrows())
    assert len(found) > 100
    upward = [
        f"{name} uses {other}" for name, other in found if room(other) not in MAY_USE[room(name)]
    ]
    assert not upward


def test_rooms_of_stages_use_little_of_the_engine():
    more = [
        f"{name} uses {other}"
        for name, other in arrows()
        if room(name) in STAGES
        and room(other) == "engine"
        and other.split(".")[2]
        not in OF_THE_ENGINE | (OF_RECORDS if room(name) == "paper" else set())
    ]
    assert not more


def test_no_module_imports_itself_through_others():
    assert not circle(USES)


@pytest.mark.parametrize("module", ["ptq_dynamics.graph", "ptq_dynamics.cli.verbs"])
def test_what_every_start_imports_is_light(module):
    heavy = "{'torch', 'transformers', 'matplotlib', 'pandas', 'scipy', 'datasets'}"
    done = python(["-c", f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"], ROOT)
    assert done.stdout == "[]\n", done.stderr
