"""What `status` said last is said again at once, until anything changes that it looked at."""

import os
import shutil
import sys
import time

import pytest
from project import SHOWN, Project
from ptq_dynamics.cli import unchanged
from ptq_dynamics.engine.paths import MANIFEST
from ptq_dynamics.measure.names import LOSSES

FRESH = r"results are fresh; nothing to do"
RESULT = "results/smoke/evaluate/rainbow-036/seed-101/gptq-4bit/all"
CODE = "workflow/ptq_dynamics/measure/joining.py"


@pytest.fixture(scope="module")
def project(built, tmp_path_factory):
    folder = shutil.copytree(built.folder, tmp_path_factory.mktemp("unchanged") / "project")
    return Project(folder, built.figures)


def status(project, *more):
    """What the command says, and whether it planned for that."""
    verb = ["status", "--scale", "smoke", "--figures", project.figures, *more]
    done = project.process([sys.executable, "-X", "importtime", "-m", "ptq_dynamics.cli", *verb])
    return done, "ptq_dynamics.graph" in done.stderr


def settled(project):
    """It is noted that all is fresh, some time after the last change."""
    time.sleep(2 * unchanged.TICK)
    done, _ = status(project)
    assert done.returncode == 0 and FRESH in done.stdout, done.stdout
    again, planned = status(project)
    assert not planned and again.returncode == 0 and again.stdout == done.stdout


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def disguised(path):
    """Other bytes of the same number and time of change."""
    times = path.stat()
    flip(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


CHANGES = {
    "a file of a result": (f"{RESULT}/{LOSSES}", disguised),
    "a manifest": (f"{RESULT}/{MANIFEST}", disguised),
    "a missing figure": ("figures/smoke/fig04.pdf", os.unlink),
    "code": (CODE, lambda path: path.write_text(path.read_text().replace("losses |=", "losses ="))),
    "configuration": ("config/quantizers.yaml", lambda path: path.write_text("{}")),
}


def test_a_change_is_seen(project, monkeypatch):
    """By the command once, and of every kind by what it asks first."""
    settled(project)
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(unchanged, "ROOT", project.folder)
    files = [path for path in (project.folder / "results").rglob("*") if path.is_file()]
    files += [path for path in (project.folder / "figures").rglob("*") if path.is_file()]
    for kind, (file, change) in CHANGES.items():
        time.sleep(2 * unchanged.TICK)
        monkeypatch.setattr(unchanged, "BEGAN", time.time())
        unchanged.keep(["status"], "all is fresh", map(str, files))
        assert unchanged.told(["status"]) == "all is fresh", kind
        with project.edited(file) as (path,):
            change(path)
            assert unchanged.told(["status"]) is None, kind
            if kind == "configuration":
                done, planned = status(project)
                assert planned and done.returncode == 1, done.stdout


def test_what_comes_beside_code_and_libraries_is_looked_at(project, tmp_path):
    settled(project)
    new = project.folder / "workflow/ptq_dynamics/measure/joining_more.py"
    new.write_text("")
    assert status(project)[1]
    new.unlink()
    settled(project)
    for more in (["--deep"], ["--json"], ["--more-seeds", "7"]):
        assert status(project, *more)[1], more
    other = Project(project.folder, project.figures, {"PYTHONPATH": f"{tmp_path}:workflow"})
    assert status(other)[1]


def test_what_changed_while_all_was_looked_at_is_not_noted(project, monkeypatch):
    settled(project)
    with project.edited(f"{RESULT}/{LOSSES}") as (path,):
        began = unchanged.BEGAN
        note = project.folder / unchanged.NOTES
        shutil.rmtree(note)
        content = path.read_bytes()
        path.write_bytes(content)
        assert path.stat().st_ctime > began
        here = os.getcwd()
        try:
            os.chdir(project.folder)
            unchanged.keep(["status"], "all is fresh", [str(path)])
            assert not note.exists()
            time.sleep(2 * unchanged.TICK)
            monkeypatch.setattr(unchanged, "BEGAN", time.time())
            unchanged.keep(["status"], "all is fresh", [str(path)])
            assert note.exists()
        finally:
            os.chdir(here)


def test_thousands_of_results_are_looked_at_in_little_time(tmp_path, monkeypatch):
    """Four files each of 5,000 results: a fraction of the two seconds that are allowed."""
    monkeypatch.chdir(tmp_path)
    files = []
    for number in range(5000):
        folder = tmp_path / f"results/{number}"
        folder.mkdir(parents=True)
        files += [str(folder / name) for name in ("manifest", "record", "losses", "log")]
    for file in files:
        with open(file, "w") as opened:
            opened.write("x")
    time.sleep(2 * unchanged.TICK)
    monkeypatch.setattr(unchanged, "BEGAN", time.time())
    unchanged.keep(["status"], "all 5000 results are fresh", files)
    began = time.process_time()
    assert unchanged.told(["status"]) == "all 5000 results are fresh"
    took = time.process_time() - began
    print(f"{SHOWN}5,000 results with 20,000 files were looked at in {took:.2f} s")
    assert took < 2
