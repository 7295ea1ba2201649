"""Jobs on one machine with several GPUs get different ones, here by names that stand for none."""

import os
import sys
import tempfile
from contextlib import ExitStack
from subprocess import PIPE, Popen

import pytest
from ptq_dynamics.engine.lease import LEASED, SHARED, VISIBLE, visible

HOLD = """
import os, sys
from ptq_dynamics.engine.lease import LEASED, VISIBLE, take_devices
take_devices(int(sys.argv[1]), lambda text: print(text, flush=True))
found = os.environ.get(LEASED, "none").split(",")
print("has", *found, "sees", os.environ.get(VISIBLE), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """Two devices that no one else knows, outside of any scheduler's job."""
    monkeypatch.delenv(LEASED, raising=False)
    monkeypatch.setenv(SHARED, "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv(VISIBLE, "3,7")


@pytest.fixture
def hold():
    """Start a process that has a lease until it is told to end, and hear what it says."""
    with ExitStack() as stack:

        def begin(count=1, **environment):
            command = [sys.executable, "-c", HOLD, str(count)]
            variables = {**os.environ, **environment}
            known = {name: value for name, value in variables.items() if value is not None}
            found = Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=known)
            stack.callback(found.wait)
            stack.callback(found.kill)
            return found

        yield begin


BOTH = {"has 3 sees 3\n", "has 7 sees 7\n"}


def end(holder):
    return holder.communicate()[0]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [("0,1", ["0", "1"]), (" 4 , GPU-8932f937 ", ["4", "GPU-8932f937"]), ("", []), ("-1", [])],
)
def test_the_devices_of_a_users_choice_are_those_that_cuda_takes(chosen, names, monkeypatch):
    monkeypatch.setenv(VISIBLE, chosen)
    assert visible() == names


WHOLE = """GPU 0: NVIDIA H200 (UUID: GPU-d3a5)
GPU 1: NVIDIA H200 (UUID: GPU-77f0)
"""


@pytest.mark.parametrize(("listed", "names"), [(WHOLE, ["0", "1"]), ("", [])])
def test_without_a_choice_they_are_those_that_nvidia_smi_lists(
    listed, names, tmp_path, monkeypatch
):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n[ $1 = -L ] && cat <<END\n{listed}END\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv(VISIBLE)
    assert visible() == names
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert visible() == []


def test_jobs_get_different_devices_and_more_jobs_wait_in_one_line(hold):
    one, other = hold(), hold()
    has = {each.stdout.readline(): each for each in (one, other)}
    assert has.keys() == BOTH
    third = hold()
    assert third.stdout.readline() == "waits for a GPU; other jobs compute on 3, 7\n"
    has["has 7 sees 7\n"].kill()
    assert third.stdout.readline() == "has 7 sees 7\n"
    assert end(third) == "", "it says more than one line"


@pytest.mark.parametrize(
    ("count", "environment", "said"),
    [
        (5, {}, "has 3 7 sees 3,7\n"),  # all, as there are no more
        (1, {LEASED: "3", VISIBLE: "3"}, "has 3 sees 3\n"),  # what a job with a lease starts
        (1, {VISIBLE: ""}, "has none sees \n"),
        (0, {}, "has none sees 3,7\n"),
        (1, {SHARED: None}, "has none sees 3,7\n"),  # a scheduler gives them
    ],
)
def test_a_job_leases_what_is_there_and_left_to_it(hold, count, environment, said):
    assert hold(count, **environment).stdout.readline() == said


@pytest.mark.slow
def test_several_devices_are_had_at_once_or_not_at_all(hold):
    one = hold()
    assert one.stdout.readline() == "has 3 sees 3\n"
    both = hold(2)
    assert both.stdout.readline() == "waits for 2 GPUs; other jobs compute on 3, 7\n"
    # One that wants the other device, and those alone, is not kept from it.
    apart = hold(**{VISIBLE: "7"})
    assert apart.stdout.readline() == "has 7 sees 7\n"
    end(apart)
    end(one)
    assert both.stdout.readline() == "has 3 7 sees 3,7\n"


def test_as_many_jobs_share_a_device_as_the_build_says(hold):
    found = [hold(**{SHARED: "2"}).stdout.readline().split()[1] for _ in range(4)]
    assert found[:2] == found[2:] == ["3", "7"], "those with the fewest jobs come first"


# Jobs


def test_a_job_waits_for_a_device_says_so_in_one_line_and_then_runs(toy, hold):
    toy.settle(seed=2)
    one, other = hold(), hold()
    assert {each.stdout.readline() for each in (one, other)} == BOTH
    waiting = toy.start("numbers", "--devices", "1")
    line = "toy.numbers one: waits for a GPU; other jobs compute on 3, 7\n"
    assert waiting.stderr.readline() == line
    assert not list((toy.folder / "results/numbers").glob(".work-*/out")), "it computes"
    end(one)
    said = waiting.communicate(timeout=60)[1]
    assert waiting.returncode == 0 and "done in" in said and "waits" not in said
    assert "waits for a GPU" in (toy.folder / "results/numbers/.log").read_text()
