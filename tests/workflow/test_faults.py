"""Kills, damage and wrong names: nothing is lost, nothing half looks whole, one line says why."""

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from subprocess import DEVNULL, PIPE, Popen

import psutil
import pytest
from project import SNAKEMAKE, Project
from support import artifacts, copy_results, differing

TRUNK = "results/smoke/train/constant-3e-3/seed-201"


# Snakemake that is killed


@pytest.fixture(scope="module")
def partial(built, tmp_path_factory):
    """A copy with the first half of the graph built: its trunk, but none of what follows."""
    project = Project.copy(tmp_path_factory.mktemp("killed") / "project", figures="fig04")
    copy_results(built.folder, project.folder, ["results/smoke/corpus/main", TRUNK])
    shutil.copytree(built.folder / ".snakemake", project.folder / ".snakemake")
    return project


def test_an_interrupt_ends_the_build_and_its_jobs(partial):
    """Jobs that the warm process runs, or plain ones, as it comes."""
    process = Popen(
        partial.command(targets=("fig04",)),
        cwd=partial.folder,
        env=partial.variables(),
        stdout=DEVNULL,
        stderr=PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: list((partial.folder / "results").rglob(".lease")), "no job begins")
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=40)[1]
    assert process.returncode == 1 and "Traceback" not in said, said[-2000:]
    for path in (partial.folder / "results").rglob(".lease"):
        for owner in re.findall("^pid=(.*)", path.read_text(), flags=re.M):
            wait_for(lambda pid=int(owner): not psutil.pid_exists(pid), "a job goes on")


@pytest.mark.parametrize(
    ("verb", "number"), [("snakemake -n", signal.SIGINT), ("status", signal.SIGTERM)]
)
def test_a_signal_while_a_build_is_planned_ends_it(tmp_path, verb, number):
    project = Project.copy(tmp_path / "project", figures="fig04")
    command = [sys.executable, "-m", "ptq_dynamics.cli", "status", "--scale", "smoke"]
    if verb == "snakemake -n":
        command = project.command("-n", targets=("fig04",))
    # Whoever plans reads it, and gets no further.
    slow = project.folder / "config/runs.yaml"
    slow.unlink()
    os.mkfifo(slow)
    opened = []
    process = Popen(command, cwd=project.folder, env=project.variables(), stderr=PIPE, text=True)
    wait_for(lambda: process.poll() is not None or is_read(slow, opened), "nothing is planned")
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


@pytest.fixture
def measured(built, tmp_path):
    """A copy with the trunk and its losses."""
    project = Project.copy(tmp_path / "project", figures="fig04")
    copy_results(built.folder, project.folder, ["results/smoke/corpus/main", TRUNK, LOSSES])
    shutil.copytree(built.folder / ".snakemake", project.folder / ".snakemake")
    return project


def test_a_clock_that_was_set_back_stops_no_build(built, measured):
    """What the job reads is of tomorrow."""
    tomorrow = time.time() + 24 * 3600
    for place in ("results/smoke/corpus/main", TRUNK):
        os.utime(measured.folder / place / "manifest.json", (tomorrow, tomorrow))
    target = (f"{LOSSES}/manifest.json",)
    (measured.folder / LOSSES / "record.json").unlink()
    done = measured.snakemake(targets=target)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert not differing(artifacts(built.folder / LOSSES), artifacts(measured.folder / LOSSES))
    assert measured.planned(targets=target) == set()


def test_a_job_that_is_killed_once_it_has_published_has_its_result(built, measured):
    """Snakemake calls it failed, and would remove its manifest."""
    target = (f"{LOSSES}/manifest.json",)
    path = measured.folder / LOSSES / "record.json"
    path.unlink()
    process = Popen(
        measured.command(targets=target),
        cwd=measured.folder,
        env=measured.variables(),
        stdout=DEVNULL,
        stderr=PIPE,
        text=True,
    )
    job = []
    while not path.exists():
        assert process.poll() is None, "the build ended before its job was seen"
        job = job or jobs_of(process.pid)
    os.kill(*job, signal.SIGKILL)
    said = process.communicate(timeout=60)[1]
    assert measured.planned(targets=target) == set(), said
    assert not differing(artifacts(built.folder / LOSSES), artifacts(measured.folder / LOSSES))


def jobs_of(snakemake):
    """Processes that run jobs of a build."""
    found = []
    for each in psutil.Process(snakemake).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if each.cmdline()[1:3] == ["-m", "ptq_dynamics.engine.run"]:
                found.append(each.pid)
    return found


def wait_for(condition, what, patience=120):
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def test_the_warm_process_ends_with_the_snakemake_that_was_killed(partial):
    for path in (partial.folder / "results/smoke").glob("measure/*/*/*/*/record.json"):
        path.unlink()
    process = Popen(
        partial.command(targets=("fig04",)),
        cwd=partial.folder,
        env=partial.variables(),
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )
    server = None
    end = time.monotonic() + 60
    while server is None and process.poll() is None:
        assert time.monotonic() < end, "there is no warm process"
        server = warm_server_of(process.pid)
        time.sleep(0.05)
    assert server is not None, "the build ended before its warm process was seen"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 60
    while os.path.exists(f"/proc/{server}"):
        assert time.monotonic() < end, "the warm process outlives Snakemake"
        time.sleep(0.1)


def warm_server_of(parent):
    children = f"/proc/{parent}/task/{parent}/children"
    try:
        with open(children, encoding="utf-8") as file:
            found = file.read().split()
        for child in found:
            with open(f"/proc/{child}/cmdline", encoding="utf-8") as file:
                if "ptq_dynamics.engine.warm" in file.read():
                    return int(child)
    except FileNotFoundError:
        pass
    return None


# Damage


def test_two_builds_of_one_figure_at_once_end_well_and_make_nothing_twice(built, partial):
    target = ("fig04",)
    builds = [
        Popen(
            partial.command("--cores", "2", targets=target),
            cwd=partial.folder,
            env=partial.variables(),
            stdout=DEVNULL,
            stderr=PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [build.communicate(timeout=900)[1] for build in builds]
    assert [build.returncode for build in builds] == [0, 0], said[0][-2000:] + said[1][-2000:]
    done = re.findall(r"^(.*): done in", "".join(said), flags=re.M)
    assert done and len(done) == len(set(done)), sorted(done)
    assert partial.planned(targets=target) == set()
    name = "figures/smoke/fig04.csv"
    assert (partial.folder / name).read_bytes() == (built.folder / name).read_bytes()


# Wrong names on the command line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", "scale=smoke", "figures=fig99"], ["FIGURES: no figure 'fig99'", "nearest"]),
        (["--config", "scale=huge"], ["SCALE: no scale 'huge'", "gpu"]),
        (["--config", "scal=smoke"], ["scal: unknown key", "did you mean 'scale'?"]),
        (["--config", "scale=smoke", "seed=x"], ["seed is 'x'", "integer"]),
        (["--workflow-profile", "profiles/slrm"], ["profile 'profiles/slrm'; the nearest: prof"]),
        (["--config", "scale=smoke", "--", "fig99"], ["fig99"]),
        (
            [
                "--config",
                "scale=smoke",
                "--",
                "results/smoke/train/rainbow-999/seed-201/manifest.json",
            ],
            ["rainbow-999"],
        ),
    ],
    ids=["figure", "scale", "key", "seed", "profile", "target", "run"],
)
def test_a_wrong_name_is_one_clear_line(built, arguments, words):
    done = built.process([SNAKEMAKE, "-n", *arguments])
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "Traceback (most recent" not in said
    lines = [line for line in said.splitlines() if words[0] in line]
    assert lines, said[-2000:]
    missing = [word for word in words if word not in lines[0]]
    assert not missing, (missing, lines[0])


def test_a_broken_configuration_stops_before_any_job(built):
    with built.edited("config/runs.yaml") as (path,):
        built.replace(path, "cooldown: 18/190", "cooldwn: 18/190")
        done = built.snakemake()
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "Traceback" not in said
    assert "config/runs.yaml: runs.rainbow-002" in said
    assert "runs.rainbow-002.cooldwn: unknown key; did you mean 'cooldown'?" in said
    assert "rule " not in said
