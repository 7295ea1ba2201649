"""Several processes of one job, and what a job starts: one works, and all end with it."""

import os
import sys
from subprocess import PIPE, Popen

import psutil
import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import lease
from support import wait_until
from toy import Toy

pytestmark = pytest.mark.slow


def test_the_lease_of_a_machine_that_is_gone_is_free_after_a_while(tmp_path):
    path = tmp_path / ".lease"
    path.write_text("pid=1\nhost=elsewhere\ntoken=0\n")
    os.utime(path, (0, 0))
    with lease.held(path, lambda _: None) as mine:
        mine.require()


def test_the_lease_of_who_was_killed_before_it_wrote_its_name_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "SECONDS", 1.0)
    monkeypatch.setattr(lease, "BEAT", 0.3)
    path = tmp_path / ".lease"
    path.touch()
    with lease.held(path, lambda _: None) as mine:
        mine.require()


@pytest.mark.parametrize("loss", ["taken", "deleted"])
def test_who_has_lost_the_lease_is_told(tmp_path, loss):
    path = tmp_path / ".lease"
    with lease.held(path, print) as mine:
        mine.require()
        path.write_text("another\n") if loss == "taken" else path.unlink()
        with pytest.raises(Problem, match="another process has taken over"):
            mine.require()


# Jobs


@pytest.fixture
def toy(tmp_path):
    """A walk that takes seconds and has not begun."""
    made = Toy.at(tmp_path / "toy")
    made.settle(pause=0.1, count=20)
    assert made.run("numbers").returncode == 0
    return made


def test_two_processes_of_one_job_make_it_once(toy):
    started = [toy.start("walk") for _ in range(3)]
    said = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], said
    assert "".join(said).count(": done in ") == 1
    assert "".join(said).count("waits for the process") == 2


def test_who_waits_for_one_that_is_killed_goes_on_from_its_state(toy):
    first = toy.start("walk")
    wait_until(lambda: list((toy.folder / "results/walk").glob(".work-*/scratch/state.txt")))
    second = toy.start("walk")
    assert "waits for the process" in second.stderr.readline()
    first.kill()
    first.wait()
    said = second.communicate(timeout=90)[1]
    assert second.returncode == 0 and "going on from" in said, said


# What a job starts

PARENT = """
import os, sys
from ptq_dynamics.engine import subprocesses
inner = "import subprocess, sys, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
print("starts", flush=True)
subprocesses.run([sys.executable, "-c", inner], os.environ)
"""


def test_what_a_job_started_ends_with_it_when_it_is_killed():
    process = Popen([sys.executable, "-c", PARENT], stdout=PIPE, text=True)
    process.stdout.readline()
    wait_until(lambda: len(psutil.Process(process.pid).children(recursive=True)) == 3)
    found = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    wait_until(lambda: not any(each.is_running() for each in found), patience=30)
