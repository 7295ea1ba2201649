"""Several processes of one job, signals, and what a job starts: one works, and all end with it."""

import errno
import os
import signal
import sys
import time
from contextlib import chdir
from pathlib import Path
from subprocess import PIPE, Popen

import psutil
import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import builds, lease, publish
from ptq_dynamics.engine.execute import _explain, execute
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.train import train
from support import (
    Workspace,
    artifacts,
    copy_results,
    differing,
    job_file,
    specification,
    wait_until,
)

HOLD = """
import sys, time
from pathlib import Path
from ptq_dynamics.engine import lease
with lease.held(Path(sys.argv[1]), lambda text: print(text, flush=True), lambda: None):
    print("has it", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(path, seconds):
    return Popen([sys.executable, "-c", HOLD, str(path), str(seconds)], stdout=PIPE, text=True)


def test_the_second_waits_with_a_line_until_the_first_has_ended(tmp_path):
    first = holder(tmp_path / ".lease", 1)
    assert first.stdout.readline() == "has it\n"
    second = holder(tmp_path / ".lease", 0)
    line = second.stdout.readline()
    assert line.startswith(f"waits for process {first.pid} on "), line
    assert second.communicate()[0] == "has it\n"
    assert first.wait() == 0
    assert not list(tmp_path.iterdir()), "a lease is left behind"


def test_the_lease_of_who_was_killed_is_free(tmp_path):
    first = holder(tmp_path / ".lease", 60)
    first.stdout.readline()
    first.kill()
    first.wait()
    begun = time.monotonic()
    second = holder(tmp_path / ".lease", 0)
    assert "has it" in second.communicate()[0]
    assert time.monotonic() - begun < 20


def test_results_in_one_folder_have_leases_of_their_own(tmp_path):
    with (
        lease.held(tmp_path / ".fig04.lease", print, lambda: None) as one,
        lease.held(tmp_path / ".fig06.lease", print, lambda: None) as other,
    ):
        one.require()
        other.require()
        assert not one.waited and not other.waited


@pytest.mark.parametrize("loss", ["taken", "deleted"])
def test_who_has_lost_the_lease_is_told(tmp_path, loss):
    path = tmp_path / ".lease"
    with lease.held(path, print, lambda: None) as mine:
        mine.require()
        path.write_text("another\n") if loss == "taken" else path.unlink()
        with pytest.raises(Problem, match="another process has taken over"):
            mine.require()


# Jobs


@pytest.fixture
def here(workspace, tmp_path):
    copy_results(workspace.folder, tmp_path, [workspace.plan.corpora.corpus("main").folder])
    return Workspace(tmp_path, workspace.plan)


def begin(here, spec):
    command = [
        sys.executable,
        "-m",
        "ptq_dynamics.engine.run",
        "--job",
        job_file(here.folder, spec),
    ]
    return Popen(command, cwd=here.folder, stderr=PIPE, text=True)


def is_training(here, spec):
    return lambda: list((here.folder / spec["folder"]).glob(".work-*/out/step-*"))


@pytest.mark.slow
def test_two_processes_of_one_job_make_it_once(here, trunk):
    job = here.plan.trajectories.train("trunk")
    processes = [begin(here, specification(job)) for _ in range(2)]
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert "".join(said).count(": done in ") == 1
    assert "".join(said).count("waits for process") == 1
    assert not differing(artifacts(trunk.folder), artifacts(here.folder / job.folder))


@pytest.mark.slow
def test_who_lost_the_lease_publishes_nothing(here, monkeypatch, capsys):
    job = here.plan.trajectories.train("trunk")
    prepare = publish.prepare

    def robbed(*arguments):
        (here.folder / job.paths.lease).write_text("another\n")
        prepare(*arguments)

    monkeypatch.setattr("ptq_dynamics.engine.execute.prepare", robbed)
    assert here.attempt(job) == 1
    assert "another process has taken over" in capsys.readouterr().err
    assert artifacts(here.folder / job.folder) == {}


@pytest.mark.slow
@pytest.mark.parametrize("moved", [0, 1, 5])
def test_a_kill_while_files_are_published_computes_nothing_again(
    here, trunk, moved, monkeypatch, capsys
):
    job = here.plan.trajectories.train("trunk")
    count = iter(range(1000))

    def dies(source, target):
        if next(count) >= moved:
            raise KeyboardInterrupt
        os.replace(source, target)

    monkeypatch.setattr(publish, "_move", dies)
    assert here.attempt(job) == 1
    monkeypatch.undo()
    assert not (here.folder / job.manifest).exists()
    monkeypatch.setattr("ptq_dynamics.train.train.train", None)
    with chdir(here.folder):
        assert execute(specification(job)) == 0, capsys.readouterr().err
    assert not differing(artifacts(trunk.folder), artifacts(here.folder / job.folder))


@pytest.mark.slow
def test_resuming_keeps_the_checkpoint_that_shows_how_far_a_run_has_come(here, monkeypatch):
    job, update = here.plan.trajectories.train("trunk"), train.Trainer.update

    def stops(trainer, batch):
        if trainer.step == 12:
            raise KeyboardInterrupt
        return update(trainer, batch)

    monkeypatch.setattr(train.Pace, "state_is_due", lambda _: True)
    monkeypatch.setattr(train.Trainer, "update", stops)
    numbers = []
    for _ in range(2):
        assert here.attempt(job) == 1
        (work,) = (here.folder / job.folder).glob(".work-*/out")
        kept = ("step-0000012", "state-0000012.safetensors")
        numbers.append([(work / name).stat().st_ino for name in kept])
    assert numbers[0] == numbers[1]


# Signals

LINE = "error: train.train trunk seed 100: interrupted; run the same command again to go on"

DEAF = """
import sys, time
from ptq_dynamics.engine import signals
signals.GRACE = 0.5
from ptq_dynamics.engine import run
from ptq_dynamics.train import train
def swallow(context):
    print("deaf", file=sys.stderr, flush=True)
    while True:
        try:
            time.sleep(60)
        except:
            pass
train.run.__code__ = swallow.__code__
train.run.__globals__["time"] = time
train.run.__globals__["sys"] = sys
sys.exit(run.main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_job_in_one_line(here, number):
    spec = specification(here.plan.trajectories.train("trunk"), last=1000)
    process = begin(here, spec)
    wait_until(is_training(here, spec))
    process.send_signal(number)
    said = process.communicate(timeout=15)[1]
    assert process.returncode == 1
    assert said.splitlines()[-1] == LINE
    assert said.count("error:") == 1 and "Traceback" not in said


@pytest.mark.slow
def test_a_signal_ends_a_job_that_swallows_it(here):
    spec = specification(here.plan.trajectories.train("trunk"))
    command = [sys.executable, "-c", DEAF, "--job", job_file(here.folder, spec)]
    process = Popen(command, cwd=here.folder, stderr=PIPE, text=True)
    assert "deaf" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=15)[1]
    assert process.returncode == 1
    assert said == LINE + "\n"


# Children

PARENT = """
import sys, time
from subprocess import DEVNULL
from ptq_dynamics.engine import processes
inner = "import subprocess, sys, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
process = processes.start([sys.executable, "-c", inner], stdout=DEVNULL, stderr=DEVNULL)
print("started", flush=True)
time.sleep(600)
"""


def test_what_a_job_started_ends_with_it_when_it_is_killed():
    process = Popen([sys.executable, "-c", PARENT], stdout=PIPE, text=True)
    process.stdout.readline()
    wait_until(lambda: len(psutil.Process(process.pid).children(recursive=True)) == 3)
    found = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    wait_until(lambda: not any(each.is_running() for each in found), patience=10)


POOL = """
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from ptq_dynamics.engine import processes
with ProcessPoolExecutor(2, get_context("fork"), processes.end_with_parent) as pool:
    list(pool.map(str, range(10)))
    print("started", flush=True)
    time.sleep(600)
"""


def test_forked_workers_end_with_a_job_that_is_killed():
    process = Popen([sys.executable, "-c", POOL], stdout=PIPE, text=True)
    process.stdout.readline()
    found = psutil.Process(process.pid).children(recursive=True)
    assert len(found) == 2
    process.kill()
    process.wait()
    wait_until(lambda: not any(each.is_running() for each in found), patience=10)


def test_what_a_command_prints_and_its_status_are_kept():
    from ptq_dynamics.engine import processes

    done = processes.run(["sh", "-c", "echo out; echo err >&2; exit 3"], dict(os.environ))
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 3)


# A full disk


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "full"),
        OSError(errno.EDQUOT, "full"),
        RuntimeError("I/O error: Disk quota exceeded (os error 122)"),
    ],
)
def test_a_quota_is_as_a_full_disk(tmp_path, error):
    assert "the disk is full; free some space" in _explain(error, Paths(tmp_path))


# Builds

CLAIM = """
import sys, time
from pathlib import Path
from ptq_dynamics.engine import builds
builds.claim(Path(sys.argv[1]), ["made"], ["read"])
print("claimed", flush=True)
time.sleep(60)
"""


def test_builds_keep_apart_until_one_is_killed(tmp_path):
    other = Popen([sys.executable, "-c", CLAIM, str(tmp_path)], stdout=PIPE, text=True)
    other.stdout.readline()
    try:
        for makes, reads in ((["made"], []), (["read"], []), ([], ["made"])):
            with pytest.raises(Problem, match=f"another build .process {other.pid}. is at work"):
                builds.claim(tmp_path, makes, reads)
        builds.claim(tmp_path, ["mine"], ["read"])
        other.kill()
        other.wait()
        builds._held.pop().close()
        builds.claim(tmp_path, ["made"], [])
        assert len(list(Path(tmp_path).glob("*.json"))) == 1
    finally:
        other.kill()
        builds._held.pop().close()
