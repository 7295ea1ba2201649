"""What the jobs of a real build enter and read: their functions of the package, and the settings
that they look at."""

import ast
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ptq_dynamics.engine.fingerprint import sources
from ptq_dynamics.engine.fingerprint.reach import OWN, WHOLE, Node, Program
from ptq_dynamics.engine.specification import Job
from support import ROOT, job_file, python

# Python imports it in every process of the build: those that fork, their children and threads, and
# the workers in other environments. It notes each function once a job, but for the engine and what
# runs while a module is imported; and each setting that a job is given or reads.
HOOK = '''
import dataclasses, json, os, sys, threading

PACKAGE = os.sep + os.path.join("workflow", "ptq_dynamics") + os.sep
FOLDER = os.environ["TRACED"]
SHARED = tuple(os.path.join("base", name) for name in ("content.py", "problem.py"))
ENGINE = "jobs" + os.sep
job, seen = None, set()
if "TRACED_JOB" in os.environ:
    job = json.loads(os.environ["TRACED_JOB"])


def place(code):
    return code.co_filename.partition(PACKAGE)[2]


def wanted():
    """Whether this is one of the first jobs with its stage and modules: to trace costs as much as
    most jobs do."""
    for number in range(int(os.environ["TRACED_JOBS"])):
        try:
            name = f"{'+'.join([job[0], *job[1]])}.{number}"
            os.close(os.open(os.path.join(FOLDER + ".jobs", name), os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            continue
    return False


def callers(frame):
    while frame is not None:
        if PACKAGE in frame.f_code.co_filename:
            yield frame.f_code
        frame = frame.f_back


def depth_of_engine(above):
    inside = (n for n, each in enumerate(above) if place(each).startswith(ENGINE))
    return next(inside, len(above))


def tell(**line):
    with open(os.path.join(FOLDER, str(os.getpid())), "a") as out:
        out.write(json.dumps({"job": job, **line}) + "\\n")


def parts(settings):
    """The dataclasses that settings hold, themselves included."""
    if isinstance(settings, (tuple, list)):
        for each in settings:
            yield from parts(each)
    elif dataclasses.is_dataclass(settings):
        yield settings
        for each in dataclasses.fields(settings):
            yield from parts(getattr(settings, each.name))


def watch(settings):
    for part in list(parts(settings)):
        kind = type(part)
        for each in dataclasses.fields(kind):
            if getattr(part, each.name) not in (None, (), False, ""):
                tell(given=[kind.__name__, each.name])
    for kind in {type(part) for part in list(parts(settings))}:
        spy(kind)


def spy(kind):
    plain, known = kind.__getattribute__, {each.name for each in dataclasses.fields(kind)}
    told = set()

    def read(self, name):
        if name in known and name not in told:
            if not place(sys._getframe(1).f_code).startswith(ENGINE):
                told.add(name)
                tell(read=[kind.__name__, name])
        return plain(self, name)

    kind.__getattribute__ = read


def note(frame, event, argument):
    global job
    code = frame.f_code
    if event != "call" or PACKAGE not in code.co_filename:
        return
    file = place(code)
    if file == os.path.join("jobs", "execute.py") and code.co_name == "execute":
        found = frame.f_locals["job"]
        job = [found["stage"], found["modules"]]
        if not wanted():
            job = None
            sys.setprofile(None)
            threading.setprofile(None)
            return
        os.environ["TRACED_JOB"] = json.dumps(job)
        seen.clear()
    if job is None or code in seen or file.startswith(ENGINE):
        return
    above = list(callers(frame))
    # The engine imports what a job runs, and has helpers of its own outside of jobs/.
    if any(caller.co_name == "<module>" for caller in above[: depth_of_engine(above)]):
        if "foreign" not in file or code.co_name == "<module>":
            return
    nearest = next((each for each in above if place(each) not in SHARED), None)
    if file in SHARED and nearest is not None and place(nearest).startswith(ENGINE):
        return
    if code.co_flags & 2 == 0:
        return  # the body of a class
    seen.add(code)
    tell(file=file, line=code.co_firstlineno, name=code.co_name)
    stage = job[0].replace(".", os.sep) + ".py"
    if file == stage and code.co_name == "run" and "context" in frame.f_locals:
        watch(frame.f_locals["context"].settings)


# Not in Snakemake itself, but in what a job starts.
WORDS = ("ptq_dynamics.engine", "_worker.py")
if job is not None or any(part in word for word in sys.orig_argv for part in WORDS):
    sys.setprofile(note)
    threading.setprofile(note)
'''

Kind = tuple[str, tuple[str, ...]]
# With one stage and modules; TRACED_JOBS=1000 pytest ... traces all.
JOBS = int(os.environ.get("TRACED_JOBS", "6"))


@dataclass
class Traces:
    """Where the processes of a build note what they do."""

    folder: Path
    entered: dict[Kind, set[tuple[str, int, str]]] = field(default_factory=lambda: defaultdict(set))
    given: dict[str, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    read: dict[str, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))

    def environment(self, workflow: Path) -> dict[str, str]:
        """Variables of a build that is traced."""
        notes, hook = self.folder / "notes", self.folder / "hook"
        notes.mkdir(parents=True)
        notes.with_name("notes.jobs").mkdir()
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(HOOK)
        path = f"{workflow}{os.pathsep}{hook}"
        return {"PYTHONPATH": path, "TRACED": str(notes), "TRACED_JOBS": str(JOBS)}

    def collect(self) -> None:
        """Read what was noted."""
        for file in (self.folder / "notes").iterdir():
            for text in file.read_text().splitlines():
                self._add(json.loads(text))

    def _add(self, line: Mapping[str, object]) -> None:
        stage, modules = line["job"]
        if "given" in line:
            self.given[stage].add(tuple(line["given"]))
        elif "read" in line:
            self.read[stage].add(tuple(line["read"]))
        else:
            name = line["file"].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            entry = (f"ptq_dynamics.{name}", line["line"], line["name"])
            self.entered[stage, tuple(modules)].add(entry)

    def missed(self, workflow: Path) -> tuple[set[tuple[str, str, str]], float]:
        """What was entered and is in no fingerprint of its job; and which share of the functions
        and classes in the fingerprints was never entered."""
        files = sources.on_disk(workflow)
        program = Program(files, sources.ENGINE)
        missed, counted, used = set(), 0, 0
        for (stage, modules), entries in self.entered.items():
            roots = [Node(f"ptq_dynamics.{stage}", "run")]
            roots += [Node(f"ptq_dynamics.{module}", OWN) for module in modules]
            nodes = program.reach(roots).nodes
            hit = set()
            for module, line, name in entries:
                first = next(_nodes_at(files[module], module, line), None)
                if first not in nodes and Node(module, WHOLE) not in nodes:
                    missed.add((stage, module, name))
                hit.add(first)
            functions = {n for n in nodes if n in hit or _is_function(files[n.module], n.name)}
            counted, used = counted + len(functions), used + len(hit & nodes)
        return missed, 1 - used / counted


def trace(job: Job, folder: Path, environment: Mapping[str, str]) -> set[str]:
    """Run one job in `folder`; names of the functions that it enters, which its fingerprint has to
    hold."""
    traces = Traces(folder / "traces")
    variables = {**traces.environment(ROOT / "workflow"), **environment}
    file = job_file(folder, json.loads(job.spec()))
    done = python(["-m", "ptq_dynamics.engine.run", "--job", file], folder, variables)
    assert done.returncode == 0, done.stderr
    traces.collect()
    assert set(traces.entered) == {(job.stage, tuple(job.modules))}
    missed, _ = traces.missed(ROOT / "workflow")
    assert not missed
    return {name for entries in traces.entered.values() for _, _, name in entries}


def _nodes_at(text: str, module: str, line: int) -> Iterator[Node]:
    """The definition that holds a line."""
    for statement in ast.parse(text).body:
        decorators = getattr(statement, "decorator_list", ())
        first = min([statement.lineno, *(each.lineno for each in decorators)])
        if first <= line <= statement.end_lineno:
            names = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
            found = [getattr(statement, "name", None), *names]
            yield from (Node(module, name) for name in found if name)
            return


def _is_function(text: str, name: str) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(isinstance(n, kinds) and n.name == name for n in ast.parse(text).body)
