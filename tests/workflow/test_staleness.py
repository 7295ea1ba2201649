"""What an edit makes outdated: all that depends on it, told by other means than the engine's.

Of code: what jobs of a real build entered, as the interpreter saw it. Of configuration: settings of
a second plan. Of libraries and files: what was imported and lies there. Edits are drawn at random;
EDITS_SEED=N draws those of a failed test again, EDITS=all many.
"""

import ast
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from project import SEED, Project, named
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.job import Job
from ptq_dynamics.figures.captions import PAGE
from support import artifacts, differing, edit_yaml, leaves, plan, put

FIGURE = "fig13"  # of few jobs, with a branch
MANY = os.environ.get("EDITS") == "all"
# In each process of the build: the functions that a job enters, once each, by its folder and stem.
HOOK = """
import json, os, sys, threading
PACKAGE = os.sep + os.path.join("workflow", "ptq_dynamics") + os.sep
job, seen = None, set()

def imports(frame):
    while frame is not None and frame.f_code.co_name != "_make":
        if frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False

def note(frame, event, argument):
    global job
    code = frame.f_code
    if event != "call" or PACKAGE not in code.co_filename:
        return
    place = code.co_filename.partition(PACKAGE)[2]
    if place == os.path.join("engine", "execute.py") and code.co_name == "_make":
        spec = frame.f_locals["spec"]
        job = [spec["folder"], spec["stem"]]
        seen.clear()
    if job is None or code in seen or place.startswith("engine") or code.co_name[0] == "<":
        return
    if not imports(frame) and not frame.f_back.f_code.co_filename.endswith("manifest.py"):
        seen.add(code)
        with open(os.path.join(os.environ["TRACED"], str(os.getpid())), "a") as out:
            out.write(json.dumps([job, place, code.co_firstlineno]) + "\\n")

if any("ptq_dynamics.engine" in word for word in sys.orig_argv):
    sys.setprofile(note)
    threading.setprofile(note)
"""


@dataclass
class Known:
    """A project that was built, with what its jobs entered: by manifest, files and first lines."""

    project: Project
    entered: dict[str, set[tuple[str, int]]]

    def jobs(self) -> dict[str, Job]:
        """All jobs of the figure by their manifests, as the configuration stands."""
        chosen = plan("smoke", self.project.folder / "config", SEED, [FIGURE])
        return {job.manifest: job for job in chosen.site.needed(chosen.targets())}

    def outdated(self, **options: str) -> set[str]:
        """Manifests of all results that are not up to date."""
        project = replace(self.project, **options)
        return {each["manifest"] for each in project.status() if each["state"] != "up to date"}


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A figure, built under the eyes of the interpreter."""
    folder = tmp_path_factory.mktemp("traced")
    (folder / "hook").mkdir()
    (folder / "notes").mkdir()
    (folder / "hook/sitecustomize.py").write_text(HOOK)
    project = Project.copy(folder / "project", figures=FIGURE)
    path = f"{project.folder / 'workflow'}{os.pathsep}{folder / 'hook'}"
    environment = {"PYTHONPATH": path, "TRACED": str(folder / "notes")}
    replace(project, environment=environment).build(targets=("figures",))
    entered = dict[str, set[tuple[str, int]]]()
    for file in (folder / "notes").iterdir():
        for line in file.read_text().splitlines():
            (place, stem), source, number = json.loads(line)
            name = f"{place}/{stem}.manifest.json" if stem else f"{place}/manifest.json"
            entered.setdefault(name, set()).add((source, number))
    return Known(project, entered)


def downstream(jobs: dict[str, Job], first: set[str]) -> set[str]:
    """Some results and all that are made from them."""
    found = set(first) & jobs.keys()
    while more := {p for p, job in jobs.items() if found.intersection(job.needs)} - found:
        found |= more
    return found


# Edits: each is made, and undone; what has to be outdated meanwhile, at least and at most.

Edit = Iterator[tuple[str, set[str], set[str], dict]]


def a_function(known: Known, moments: random.Random) -> Edit:
    """Another body of a function that jobs entered."""
    every = sorted(set().union(*known.entered.values()))
    source, line = moments.choice(every)
    file = f"workflow/ptq_dynamics/{source}"
    with known.project.edited(file) as (path,):
        text = path.read_text()
        own = next(each for each in ast.walk(ast.parse(text)) if first_line(each) == line)
        lines = text.split("\n")
        body = own.body[-1]
        lines.insert(body.end_lineno, " " * body.col_offset + "assert True")
        path.write_text("\n".join(lines))
        entering = {name for name, all_ in known.entered.items() if (source, line) in all_}
        yield f"{source}: {own.name}", downstream(known.jobs(), entering), {*known.jobs()}, {}


def first_line(node: ast.AST) -> int | None:
    """As code objects have it: that of the first decorator."""
    if not isinstance(node, ast.FunctionDef):
        return None
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def at_import(known: Known, moments: random.Random) -> Edit:
    """A module that acts on others, or binds a name twice, when it is imported."""
    source = moments.choice(
        sorted({source for all_ in known.entered.values() for source, _ in all_})
    )
    line = moments.choice(("json.EDITED = 1", 'os.environ["EDITED"] = "1"', "_ = json.loads('1')"))
    with known.project.edited(f"workflow/ptq_dynamics/{source}") as (path,):
        path.write_text(f"{path.read_text()}\nimport json\nimport os\n{line}\n")
        entering = {name for name, all_ in known.entered.items() if source in dict(all_)}
        yield f"{source}: {line}", downstream(known.jobs(), entering), {*known.jobs()}, {}


def no_code(known: Known, moments: random.Random) -> Edit:
    """Comments, docstrings, messages, hints, other words for imports, and new functions in every
    module."""
    with known.project.edited(*known.project.modules()) as paths:
        for path in paths:
            text = path.read_text()
            if text.startswith('"""'):
                text = text.replace('"""', '"""Another beginning. ', 1)
            text = text.replace("raise Problem(\n", "raise Problem(\n # why\n '' +")
            text = text.replace(f"from ptq_dynamics.{path.parent.name}.", "from .")
            text = f"\ufeff{hinted(text)}\n# More.\ndef _new_one():\n    return EDITED\n"
            path.write_text(text, encoding="utf-8")
        yield "comments and messages", set(), set(), {}


def hinted(text: str) -> str:
    """A module with hints for the variables that its functions assign first."""
    lines = text.split("\n")
    for each in ast.walk(ast.parse(text)):
        match each:
            case ast.FunctionDef(body=[_, ast.Assign(targets=[ast.Name() as name]), *_]):
                line, end = lines[name.lineno - 1].encode(), name.end_col_offset
                lines[name.lineno - 1] = (line[:end] + b": object" + line[end:]).decode()
    return "\n".join(lines)


def words(known: Known, moments: random.Random) -> Edit:
    """Another title, which no job reads; the curves in another order, which the figure does."""
    page = str(Path("figures/smoke", PAGE))
    drawn = str(Path("figures/smoke", f"{FIGURE}.manifest.json"))
    for key, expected in (("title", page), ("curves", drawn)):
        with known.project.edited("config/figures.yaml") as (path,):
            edit_yaml(path, lambda found, key=key: found[FIGURE].update(other(found[FIGURE], key)))
            yield f"{key} of {FIGURE}", {expected}, {expected}, {}


def other(figure: dict, key: str) -> dict:
    curves = dict(reversed(figure["curves"].items()))
    return {key: "Another title" if key == "title" else curves}


def a_key(known: Known, moments: random.Random) -> Edit:
    """Another value of a key of the configuration."""
    before = {path: told(job) for path, job in known.jobs().items()}
    while True:
        name = moments.choice(("runs", "quantizers", "figures", "scales/smoke"))
        with known.project.edited(f"config/{name}.yaml") as (path,):
            content = yaml.safe_load(path.read_text())
            place, value = moments.choice([*leaves(content)])
            if isinstance(value, int | float) and not isinstance(value, bool):
                put(content, place, value * 2)
                path.write_text(yaml.safe_dump(content, sort_keys=False))
                try:
                    jobs = known.jobs()
                except Problem:
                    continue  # the new value does not fit the rest
                after = {path: told(job) for path, job in jobs.items()}
                changed = {name for name, text in after.items() if text != before.get(name)}
                expected = downstream(jobs, changed)
                yield f"{name}: {'.'.join(map(str, place))} {value}", expected, expected, {}
                return


def told(job: Job) -> str:
    return repr((job.stage, job.settings, sorted(job.inputs.items())))


def a_library(known: Known, moments: random.Random) -> Edit:
    """Another version of a library, which its own metadata says."""
    used = dict[str, set[str]]()
    for path, job in known.jobs().items():
        for library in job.spec["libraries"]:
            used.setdefault(library, set()).add(path)
    library = moments.choice(sorted(used))
    folder = known.project.folder.parent / f"another-{library}"
    about = folder / f"{library.replace('-', '_')}-999.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {library}\nVersion: 999\n")
    path = {"PYTHONPATH": f"{folder}{os.pathsep}{known.project.folder / 'workflow'}"}
    expected = downstream(known.jobs(), used[library])
    yield library, expected, expected, {"environment": path}


def a_file(known: Known, moments: random.Random) -> Edit:
    """A file of a result removed, cut short or changed."""
    jobs = known.jobs()
    name = moments.choice(sorted(jobs))
    result = manifest.read(known.project.folder / name)
    file = str(Path(name).parent / moments.choice(sorted(result.files)))
    harm = moments.choice([*HARMS])
    with known.project.edited(file) as (path,):
        HARMS[harm](path)
        expected = downstream(jobs, {name})
        # The page has a sheet of all pictures.
        page = {str(Path("figures/smoke", PAGE))} if file.endswith(".png") else set[str]()
        yield f"{file} {harm}", expected, expected | page, {"deep": harm == "changed"}


HARMS: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "changed": lambda path: path.write_bytes(
        bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]
    ),
}


def a_run(known: Known, moments: random.Random) -> Edit:
    """One more run in the figure."""
    before, new = known.jobs(), {"trunk": "constant-3e-3", "at": "100/190", "cooldown": "18/190"}
    with known.project.edited("config/runs.yaml", "config/figures.yaml") as (runs, figures):
        edit_yaml(runs, lambda found: found["runs"].update({"new-run": new}))
        edit_yaml(figures, lambda found: found[FIGURE]["curves"]["Decay"].append("new-run"))
        jobs = known.jobs()
        expected = downstream(jobs, jobs.keys() - before.keys())
        assert any(name.startswith("results/smoke/train/new-run/") for name in expected)
        yield "a run", expected, expected, {}


KINDS = {
    a_function: 4,
    a_key: 2,
    a_file: 2,
    a_library: 1,
    a_run: 1,
    no_code: 1,
    at_import: 2,
    words: 1,
}


def test_no_result_that_depends_on_an_edit_is_missed(known):
    seed = int(os.environ.get("EDITS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"EDITS_SEED={seed}")
    moments, missed, needless, count = random.Random(seed), {}, {}, 0
    assert known.outdated() == set()
    for kind, number in KINDS.items():
        for _ in range(number * (20 if MANY and number > 1 else 1)):
            for name, least, most, options in kind(known, moments):
                found = known.outdated(**options)
                print(f"{kind.__name__} {name}: {len(found)} outdated", flush=True)
                count += 1
                missed |= {name: sorted(least - found)[:5]} if least - found else {}
                needless |= {name: sorted(found - most)[:5]} if found - most else {}
    print(f"{count} edits, {len(missed)} missed, {len(needless)} needless")
    assert not missed and not needless, (missed, needless)
    assert known.outdated() == set()


def test_every_job_was_seen_at_work(known):
    assert known.entered.keys() == known.jobs().keys()


@pytest.mark.parametrize("edit", [a_file, a_key])
def test_snakemake_runs_what_is_outdated_and_nothing_after_an_undone_edit(known, edit):
    moments = random.Random(edit.__name__)
    for name, least, _, options in edit(known, moments):
        planned = replace(known.project, **options).planned(targets=("figures",))
        assert planned == named(least), name
    assert known.project.planned(targets=("figures",)) == set()


def test_a_copy_without_times_and_notes_loses_nothing_and_equal_bytes_stop_a_rebuild(
    known, tmp_path
):
    """Nor does an edit that makes all measurements fail, and is undone."""
    options = {"ignore": shutil.ignore_patterns(".*", "*spec.json")}
    folder = shutil.copytree(
        known.project.folder, tmp_path / "copy", copy_function=shutil.copyfile, **options
    )
    copy, drawn = replace(known.project, folder=folder), ("figures",)
    assert copy.planned(targets=drawn) == set()
    before = artifacts(folder / "results")
    # At its first line, so that the warm process imports the module and runs the jobs.
    module, line = "workflow/ptq_dynamics/measure/measure.py", "    settings, source = context."
    with copy.edited(module) as (path,):
        copy.replace(path, line, f"    assert False\n{line}")
        assert copy.snakemake(targets=drawn).returncode
        changed = differing(before, artifacts(folder / "results"))
        assert changed and all(name.endswith(("manifest.json", "spec.json")) for name in changed)
    assert copy.stale() == set()
    with copy.edited(module) as (path,):
        copy.replace(path, line, f"    assert True\n{line}")
        stages = re.findall(r"^(\S+) .*: done in ", copy.build(targets=drawn), re.M)
    assert {*stages} == {"measure.measure"}
    assert not [n for n in differing(before, artifacts(folder / "results")) if "spec" not in n]


def test_the_page_of_captions_follows_its_words_and_is_made_again(known):
    page = known.project.folder / "figures/smoke" / PAGE
    before = page.read_bytes()
    with known.project.edited("config/figures.yaml") as (path,):
        edit_yaml(path, lambda found: found[FIGURE].update(title="Another title"))
        assert known.project.planned(targets=("figures",)) == set()
        assert f"## {FIGURE}: Another title".encode() in page.read_bytes()
    page.unlink()
    assert known.outdated() == {str(page.relative_to(known.project.folder))}
    known.project.build(targets=("figures",))
    assert page.read_bytes() == before and known.outdated() == set()
