"""Results whose records list their code themselves (version 2): all that is asked of them."""

import json
import re
import shutil
import sys
from dataclasses import replace

import pytest
from project import UNUSUAL, Project
from ptq_dynamics.engine import codes, record
from ptq_dynamics.engine.paths import RECORD, records

PICTURE = "figures/smoke/fig04.png"
QUANTIZED = "results/smoke/quantize/rainbow-036/seed-101/gptq-4bit/all"
# The engine as it was then, which counts in no fingerprint: the identity had the definitions in it.
THEN = {
    "execute.py": [
        (
            "return inputs, record.identity(job, digests), earlier",
            "return inputs, earlier or record.identity(job, digests), None",
        )
    ],
    "record.py": [
        (
            "job={key: value for key, value in job.items() if key != DEFINITIONS},",
            "job={**{k: v for k, v in job.items() if k != DEFINITIONS}, 'code': job[DEFINITIONS]},",
        ),
        ("        processes=processes,\n    )", "        processes=processes, version=LISTING)"),
    ],
}


@pytest.fixture(scope="module")
def then(built, tmp_path_factory):
    """The first build as it came out then, with pictures of that identity and no table of code."""
    folder = tmp_path_factory.mktemp("former") / f"project-of-{UNUSUAL}"
    project = Project(shutil.copytree(built.folder, folder, symlinks=True), built.figures)
    table = codes.known(folder / "results/smoke/code")
    for path in records(folder / "results"):
        content = json.loads(path.read_text())
        content["job"]["code"] = table[content["job"]["code"]]
        path.write_text(record.sealed({**content, "version": record.LISTING}))
    shutil.rmtree(folder / "figures/smoke")
    engine = folder / "workflow/ptq_dynamics/engine"
    now = {name: (engine / name).read_text() for name in THEN}
    for name, changes in THEN.items():
        for old, new in changes:
            project.replace(engine / name, old, new)
    project.build()
    for name, text in now.items():
        (engine / name).write_text(text)
    shutil.rmtree(folder / "results/smoke/code")
    made = record.read(folder / f"figures/smoke/fig04.{RECORD}")
    assert made.definitions and made.made_with != made.identity
    return project


@pytest.fixture
def project(then, tmp_path):
    """A copy of that."""
    folder = shutil.copytree(then.folder, tmp_path / "project", symlinks=True)
    return Project(folder, then.figures)


def command(project, *arguments, status=0):
    done = project.process([sys.executable, "-m", "ptq_dynamics.cli", *arguments])
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def choice(project):
    return ("--scale", "smoke", "--figures", project.figures)


def is_well(project, picture):
    """All is fresh and in order, and a picture of then is known wherever it lies."""
    said = command(project, "status", "--captions", *choice(project))
    assert "results are fresh" in said
    said = command(project, "audit", "--scale", "smoke", "--rerun", "2")
    assert "all is well" in said and re.search(r"2 jobs of .*; 2 came out as they are", said)
    assert json.loads(command(project, "trace", str(picture), "--json"))["bytes"] == "as published"


def test_they_are_fresh_and_made_again_as_they_are(project, tmp_path):
    picture = shutil.copy(project.folder / PICTURE, tmp_path / "mailed.png")
    assert {each["state"] for each in project.status()} == {"fresh"}
    is_well(project, picture)
    again = [sys.executable, "-m", "ptq_dynamics.engine.run", "--compare", "--job"]
    done = project.process([*again, f"{QUANTIZED}/{RECORD}"])
    assert done.returncode == 0, done.stderr


def test_they_are_taken_over(project, tmp_path):
    other = Project.copy(tmp_path / "other", figures=project.figures)
    command(other, "adopt", str(project.folder), *choice(project))
    is_well(other, shutil.copy(project.folder / PICTURE, tmp_path / "mailed.png"))


def test_what_changed_is_said_and_can_be_accepted_and_undone(project, tmp_path):
    picture = shutil.copy(project.folder / PICTURE, tmp_path / "mailed.png")
    code = project.folder / "workflow/ptq_dynamics/figures/resolution.py"
    project.replace(code, "= 2 * math.sqrt(2)", "= math.sqrt(2) * 2")
    found = {each["manifest"]: each for each in project.status()}
    figures = {path for path, each in found.items() if each["state"] != "fresh"}
    assert figures and all("/fig" in path for path in figures)
    assert {found[path]["why"] for path in figures} == {"figures.resolution.TWO_ERRORS changed"}
    accepting = ("accept", "figures/smoke", *choice(project), "--reason", "equal")
    command(project, *accepting)
    is_well(project, picture)
    project.replace(code, "= math.sqrt(2) * 2", "= 2 * math.sqrt(2)")
    is_well(project, picture)
    assert {each["why"] for each in project.status()} == {""}


def test_what_was_accepted_then_can_be_undone(project, tmp_path):
    picture = shutil.copy(project.folder / PICTURE, tmp_path / "mailed.png")
    path = project.folder / f"figures/smoke/fig04.{RECORD}"
    known = record.read(path)
    word = record.Acceptance("equal", known.started, ("a changed",), known.made_with)
    other = {**known.job, "code": {**known.definitions, "run": "0" * 8}}
    del other["definitions"]
    path.write_text(replace(known, job=other, accepted=(word,), version=record.LISTING).text())
    assert {each["state"] for each in project.status()} == {"fresh"}
    is_well(project, picture)
    assert record.read(path) == known


def test_an_unfinished_run_goes_on(project):
    """Under the name that its work folder had then."""
    path = project.folder / f"figures/smoke/fig04.{RECORD}"
    known = record.read(path)
    path.unlink()
    work = path.with_name(f".work-fig04.{known.made_with[:16]}-01234567")
    (work / "scratch").mkdir(parents=True)
    project.build()
    assert not work.exists() and record.read(path).made_with == known.identity
