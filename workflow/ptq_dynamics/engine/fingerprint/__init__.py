"""Fingerprints of the code and of the libraries that a job's result depends on.

The code of a job is what its roots reach by name: its stage's `run`, and the modules that its
settings select. It counts by definition (function, class or constant), wherever that stands, with
what modules do when they are imported; the engine shapes no result and does not count. Where no
name shows what is meant, a whole module counts.
"""

import importlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.checkout import PACKAGE, SOURCES
from ptq_dynamics.engine.fingerprint import sources
from ptq_dynamics.engine.fingerprint.code import DEFINITIONS, Code, Definitions, over
from ptq_dynamics.engine.fingerprint.notes import Notes
from ptq_dynamics.engine.fingerprint.reach import OWN, Node, Program, Reached
from ptq_dynamics.engine.fingerprint.versions import version_now, versions

# Raised when the engine makes something else of what the same stages do; its code does not count.
ENGINE = 1
# The key of the digest that covers all definitions and how they refer to each other.
ALL = ""


class Fingerprint(NamedTuple):
    """Digests of definitions by name, with the one over them, and versions of distributions."""

    definitions: Definitions
    environment: Mapping[str, str]
    code: str

    @classmethod
    def over(cls, definitions: Definitions, environment: Mapping[str, str]) -> "Fingerprint":
        """That of such definitions."""
        return cls(definitions, environment, over(definitions))


def of(
    program: Program, stage: str, modules: Iterable[str] = (), distributions: Iterable[str] = ()
) -> Fingerprint:
    """Fingerprint of a stage's job whose settings select these modules, and which reads these
    distributions beside those that its code imports."""
    code = _code(program, stage, tuple(modules))
    return Fingerprint.over(code.definitions, versions(code.libraries, distributions))


def _code(program: Program, stage: str, modules: tuple[str, ...]) -> Code:
    reached, roots = _reached(program, stage, modules)
    own: dict[str, list[str]] = {}
    for node in reached.nodes:
        for name, digest in program.own(node).items():
            own.setdefault(name, []).append(digest[:8])
    everything = program.combined(roots, reached.nodes)
    digests = {ALL: everything, **{name: " ".join(sorted(found)) for name, found in own.items()}}
    return Code(digests, sorted(reached.libraries))


def planned(stage: str, modules: Iterable[str], distributions: Iterable[str]) -> Fingerprint:
    """Fingerprint by the sources on disk when this process first asked."""
    selected, notes = tuple(modules), _first_notes()
    code = notes.get(stage, selected)
    if code is None:
        code = _code(_program(_first_sources()), stage, selected)
        notes.add(stage, selected, code)
    return Fingerprint.over(code.definitions, versions(code.libraries, distributions))


def extended(job: Mapping[str, Any], module: str) -> dict[str, Any]:
    """A specification whose code has one module more than its settings select; `Problem` where
    there is no such module."""
    modules = (*job.get("modules", ()), module)
    found = planned(job["stage"], modules, ())
    return {**job, "modules": modules, "code": found.code, DEFINITIONS: found.definitions}


def places(stage: str, modules: Iterable[str]) -> Mapping[str, list[str]]:
    """Modules that hold the definitions which a job reaches, by the name of each."""
    reached, _ = _reached(_program(_first_sources()), stage, tuple(modules))
    found: dict[str, list[str]] = {}
    for node in sorted(reached.nodes):
        found.setdefault(node.name, []).append(node.module)
    return found


def note_planned() -> None:
    """Keep what was planned for later builds of the same sources."""
    _first_notes().write()


def check(job: Mapping[str, Any]) -> None:
    """Raise `Problem` where the engine, the code here or a library is not that of a
    specification, as they are now."""
    if job["engine"] != ENGINE:
        raise Problem(
            f"the engine is number {ENGINE} here, but the job was planned with number "
            f"{job['engine']}; run snakemake again"
        )
    found = of(_program(sources.as_loaded()), job["stage"], job.get("modules", ()))
    if found.code != job["code"]:
        differing = _differing(found.definitions, job.get(DEFINITIONS))
        raise Problem(
            f"{differing} in {SOURCES} is not the code that this job was planned with; run "
            "snakemake again, or set PYTHONPATH to the folder workflow of the job's checkout"
        )
    for name, planned_version in job["environment"].items():
        found_version = version_now(name)
        if found_version != planned_version:
            raise Problem(
                f"{name} is {found_version} here, but the job was planned with {planned_version}; "
                "plan it again with snakemake in this environment, or run it in the other"
            )


def load(job: Mapping[str, Any]) -> None:
    """Import all modules that a job runs, so that later edits do not reach it."""
    program = _program(sources.as_loaded())
    reached, _ = _reached(program, job["stage"], tuple(job.get("modules", ())))
    for name in sorted(reached.modules):
        if not program.is_script(name):
            importlib.import_module(name)


def remember() -> None:
    """Follow the code of all stages now, for the processes that are forked off this one."""
    content = sources.as_loaded()
    program = _program(content)
    for name in content:
        if not name.startswith(sources.ENGINE) and program.has(name, "run"):
            program.combined([], program.reach([Node(name, "run")]).nodes)


def _reached(program: Program, stage: str, modules: tuple[str, ...]) -> tuple[Reached, list[Node]]:
    name = f"{PACKAGE}.{stage}"
    if not program.has(name):
        raise Problem(f"there is no module {name}; write workflow/{name.replace('.', '/')}.py")
    if not program.has(name, "run"):
        raise Problem(
            f"{name} has no function run; write one in workflow/{name.replace('.', '/')}.py"
        )
    for module in modules:
        if not program.has(f"{PACKAGE}.{module}"):
            path = f"{PACKAGE}/{module.replace('.', '/')}.py"
            raise Problem(f"there is no module {PACKAGE}.{module}; write workflow/{path}")
    roots = [Node(name, "run"), *(Node(f"{PACKAGE}.{module}", OWN) for module in modules)]
    return program.reach(roots), roots


def _differing(here: Definitions, planned: Definitions | None) -> str:
    """Name of a definition that is not the same in both."""
    if planned is None:
        return "what is"
    names = sorted({*here, *planned} - {ALL})
    differing = [name for name in names if here.get(name) != planned.get(name)]
    return differing[0] if differing else "what definitions refer to"


_programs: dict[str, tuple[Mapping[str, str], Program]] = {}


def _program(content: Mapping[str, str]) -> Program:
    """The program of sources; the last one is kept."""
    known = _programs.get("last")
    if known is None or known[0] != content:
        known = _programs["last"] = (content, Program(content, sources.ENGINE))
    return known[1]


@cache
def _first_sources() -> Mapping[str, str]:
    return sources.on_disk()


@cache
def _first_notes() -> Notes:
    return Notes(_first_sources())
