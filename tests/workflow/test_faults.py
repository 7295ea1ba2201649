"""Kills, damage and wrong names: nothing is lost, nothing half looks whole, one line says why."""

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from subprocess import DEVNULL, PIPE

import pytest
from filelock import FileLock, Timeout
from project import SNAKEMAKE, Project, jobs_of
from support import artifacts, copy_results, differing, wait_until

TRUNK = "results/smoke/train/constant-3e-3/seed-201"


@pytest.fixture(scope="module")
def partial(built, tmp_path_factory):
    """A copy without the figure and some of what is quantized."""
    project = Project.copy(tmp_path_factory.mktemp("killed") / "project", figures="fig04")
    measured = [*built.folder.glob("results/smoke/measure/*/*/*")]
    kept = [path for path in measured if path.name == "fp" or "rainbow-1" in str(path)]
    places = [str(path.relative_to(built.folder)) for path in kept]
    places += ["results/smoke/corpus", "results/smoke/train"]
    copy_results(built.folder, project.folder, places)
    shutil.copytree(built.folder / ".snakemake", project.folder / ".snakemake")
    return project


# What it prints as errors can be read.
PIPES = {"stdout": DEVNULL, "stderr": PIPE}


def test_an_interrupt_ends_the_build_and_its_jobs(partial):
    """Jobs that the warm process runs, or plain ones, as it comes."""
    process = partial.start(partial.command(targets=("figures",)), **PIPES, start_new_session=True)
    wait_until(lambda: list((partial.folder / "results").rglob(".lease")), "no job begins")
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=40)[1]
    assert process.returncode == 1 and "Traceback" not in said, said[-2000:]
    for path in (partial.folder / "results").rglob(".lease"):
        wait_until(lambda path=path: is_free(path), "a job goes on")


def is_free(lease):
    with contextlib.suppress(Timeout), FileLock(lease, timeout=0):
        return True
    return False


@pytest.mark.parametrize(
    ("verb", "number"), [("snakemake -n", signal.SIGINT), ("status", signal.SIGTERM)]
)
def test_a_signal_while_a_build_is_planned_ends_it(tmp_path, verb, number):
    project = Project.copy(tmp_path / "project", figures="fig04")
    command = [sys.executable, "-m", "ptq_dynamics.cli", "status", "--scale", "smoke"]
    if verb == "snakemake -n":
        command = project.command("-n", targets=("figures",))
    # Whoever plans reads it, and gets no further.
    slow = project.folder / "config/runs.yaml"
    slow.unlink()
    os.mkfifo(slow)
    opened = []
    process = project.start(command, **PIPES)
    wait_until(lambda: process.poll() is not None or is_read(slow, opened), "nothing is planned")
    process.send_signal(number)
    said = process.communicate(timeout=40)[1]
    os.close(*opened)
    assert process.returncode == -number and "Traceback" not in said, said


def is_read(pipe, opened):
    """Whether someone has opened a pipe; who does so is kept waiting until `opened` is closed."""
    try:
        opened.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


LOSSES = "results/smoke/measure/constant-3e-3/seed-201/fp/all"


def test_a_job_that_is_killed_once_it_has_published_has_its_result(built, tmp_path):
    """Snakemake calls it failed, and would remove its manifest."""
    project = Project.copy(tmp_path / "project", figures="fig04")
    copy_results(built.folder, project.folder, ["results/smoke/corpus/main", TRUNK, LOSSES])
    shutil.copytree(built.folder / ".snakemake", project.folder / ".snakemake")
    target = (f"{LOSSES}/manifest.json",)
    path = project.folder / LOSSES / "record.json"
    path.unlink()
    process = project.start(project.command(targets=target), **PIPES)
    jobs = []
    while not path.exists():
        assert process.poll() is None, "the build ended before its job was seen"
        jobs = jobs or jobs_of(process.pid)
    jobs[0].kill()
    said = process.communicate(timeout=60)[1]
    assert project.planned(targets=target) == set(), said
    assert not differing(artifacts(built.folder / LOSSES), artifacts(project.folder / LOSSES))


def test_two_builds_of_one_figure_at_once_end_well_and_make_nothing_twice(built, partial):
    """And what was made before a clock was set back, and is of tomorrow, stops neither."""
    tomorrow = time.time() + 24 * 3600
    for place in ("results/smoke/corpus/main", TRUNK):
        os.utime(partial.folder / place / "manifest.json", (tomorrow, tomorrow))
    target = ("figures",)
    command = partial.command("--cores", "2", targets=target)
    builds = [partial.start(command, **PIPES) for _ in range(2)]
    said = [build.communicate(timeout=900)[1] for build in builds]
    assert [build.returncode for build in builds] == [0, 0], said[0][-2000:] + said[1][-2000:]
    done = re.findall(r"^(.*): done in", "".join(said), flags=re.M)
    assert done and len(done) == len(set(done)), sorted(done)
    assert partial.planned(targets=target) == set()
    name = "figures/smoke/fig04.csv"
    assert (partial.folder / name).read_bytes() == (built.folder / name).read_bytes()


UNKNOWN = "results/smoke/train/rainbow-999/seed-201/manifest.json"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workflow-profile", "profiles/slrm"], "profile 'profiles/slrm'; the nearest: prof"),
        (["--config", "scale=smoke", "--", UNKNOWN], "rainbow-999"),
    ],
    ids=["profile", "run"],
)
def test_a_wrong_name_is_one_clear_line(built, arguments, words):
    done = built.process([SNAKEMAKE, "-n", *arguments])
    said = done.stdout + done.stderr
    assert done.returncode == 1 and words in said, said[-2000:]
    assert "Traceback (most recent" not in said
