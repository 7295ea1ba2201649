"""Every function of the package that a job enters is in its fingerprint, at scale smoke."""

import ast
import json
import os

import pytest
from project import Project
from ptq_dynamics.jobs.fingerprint import sources
from ptq_dynamics.jobs.fingerprint.reach import WHOLE, Node, Program

# Python imports it in every process of the build: those that fork, their children and threads.
# It notes each function once a job, but for the engine and what runs while a module is imported.
HOOK = """
import json, os, sys, threading

PACKAGE = os.sep + os.path.join("workflow", "ptq_dynamics") + os.sep
FOLDER = os.environ["TRACED"]
SHARED = ("content.py", "problem.py")
job, seen = None, set()


def place(code):
    return code.co_filename.partition(PACKAGE)[2]


def callers(frame):
    while frame is not None:
        if PACKAGE in frame.f_code.co_filename:
            yield frame.f_code
        frame = frame.f_back


def depth_of_engine(above):
    inside = (n for n, each in enumerate(above) if place(each).startswith("jobs" + os.sep))
    return next(inside, len(above))


def note(frame, event, argument):
    global job
    code = frame.f_code
    if event != "call" or PACKAGE not in code.co_filename:
        return
    file = place(code)
    if file == os.path.join("jobs", "execute.py") and code.co_name == "execute":
        job = frame.f_locals["job"]
        seen.clear()
    if job is None or code in seen or file.startswith("jobs" + os.sep):
        return
    above = list(callers(frame))
    # The engine imports what a job runs, and has helpers of its own outside of jobs/.
    if any(caller.co_name == "<module>" for caller in above[: depth_of_engine(above)]):
        return
    nearest = next((each for each in above if place(each) not in SHARED), None)
    if file in SHARED and nearest is not None and place(nearest).startswith("jobs" + os.sep):
        return
    if code.co_flags & 2 == 0:
        return  # the body of a class
    seen.add(code)
    line = {"stage": job["stage"], "modules": job["modules"], "file": file}
    line = json.dumps({**line, "line": code.co_firstlineno, "name": code.co_name})
    with open(os.path.join(FOLDER, str(os.getpid())), "a") as out:
        out.write(line + "\\n")


sys.setprofile(note)
threading.setprofile(note)
"""

# Fewer figures for one call: TRACED_FIGURES=fig04 pytest ...
FIGURES = os.environ.get("TRACED_FIGURES", "all")


@pytest.fixture(scope="module")
def entered(tmp_path_factory):
    """What jobs entered: (stage, modules) to {(module, line, name)}; and the sources that ran."""
    folder = tmp_path_factory.mktemp("traced")
    traces, hook = folder / "traces", folder / "hook"
    traces.mkdir()
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    project = Project.copy(folder / "project", figures=FIGURES)
    path = os.pathsep.join([str(project.folder / "workflow"), str(hook)])
    project.environment = {"PYTHONPATH": path, "TRACED": str(traces)}
    project.build()
    found = {}
    for file in traces.iterdir():
        for text in file.read_text().splitlines():
            line = json.loads(text)
            name = line["file"].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            job = (line["stage"], tuple(line["modules"]))
            entry = (f"ptq_dynamics.{name}", line["line"], line["name"])
            found.setdefault(job, set()).add(entry)
    return found, sources.on_disk(project.folder / "workflow")


def nodes_at(text, module, line):
    """The definition that holds a line."""
    for statement in ast.parse(text).body:
        first = min(
            [statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))]
        )
        if first <= line <= statement.end_lineno:
            names = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name)]
            yield from (Node(module, n) for n in [getattr(statement, "name", None), *names] if n)
            return


def test_every_function_that_a_job_enters_is_in_its_fingerprint(entered):
    found, files = entered
    program = Program(files, sources.ENGINE)
    missed, counted, used = set(), 0, 0
    for (stage, modules), entries in found.items():
        roots = [Node(f"ptq_dynamics.{stage}", "run")]
        roots += [Node(f"ptq_dynamics.{module}", WHOLE) for module in modules]
        nodes = program.reach(roots).nodes
        hit = set()
        for module, line, name in entries:
            first = next(nodes_at(files[module], module, line), None)
            if first not in nodes:
                missed.add((stage, module, name))
            hit.add(first)
        functions = {n for n in nodes if n in hit or _is_function(files[n.module], n.name)}
        counted, used = counted + len(functions), used + len(hit & nodes)
    assert len(found) >= (10 if FIGURES == "all" else 3)
    print(f"{len(found)} stages; {1 - used / counted:.0%} of functions and classes never entered")
    assert not missed


def _is_function(text, name):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(isinstance(n, kinds) and n.name == name for n in ast.parse(text).body)
