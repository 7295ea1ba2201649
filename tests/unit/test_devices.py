"""Jobs on one machine with several GPUs get different ones, here by names that stand for none."""

import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import devices
from ptq_dynamics.engine.devices import ALLOCATION, LEASED, SHARED, VISIBLE, leased, visible
from ptq_dynamics.engine.warm import client, launch
from support import Workspace, copy_results, job_file, log_of, specification, wait_until

HOLD = """
import os, sys
from ptq_dynamics.engine.devices import VISIBLE, leased
with leased(int(sys.argv[1]), lambda text: print(text, flush=True)) as found:
    print("has", *found, "sees", os.environ.get(VISIBLE), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """Two devices that no one else knows, outside of any scheduler's job."""
    for name in (*devices.SCHEDULED, ALLOCATION, SHARED, LEASED):
        monkeypatch.delenv(name, raising=False)
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
            found = Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=variables)
            stack.callback(found.wait)
            stack.callback(found.kill)
            return found

        yield begin


BOTH = {"has 3 sees 3\n", "has 7 sees 7\n"}


def end(holder):
    return holder.communicate()[0]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ("0,1", ["0", "1"]),
        (" 4 , GPU-8932f937 ", ["4", "GPU-8932f937"]),
        ("", []),
        ("-1", []),
        ("2,-1,3", ["2"]),
    ],
)
def test_the_devices_of_a_users_choice_are_those_that_cuda_takes(chosen, names, monkeypatch):
    monkeypatch.setenv(VISIBLE, chosen)
    assert visible() == names


WHOLE = """GPU 0: NVIDIA H200 (UUID: GPU-d3a5)
GPU 1: NVIDIA H200 (UUID: GPU-77f0)
"""
DIVIDED = """GPU 0: NVIDIA H200 (UUID: GPU-d3a5)
  MIG 3g.71gb     Device  0: (UUID: MIG-9c1e)
  MIG 3g.71gb     Device  1: (UUID: MIG-0b77)
"""


@pytest.mark.parametrize(
    ("listed", "names"), [(WHOLE, ["0", "1"]), (DIVIDED, ["MIG-9c1e", "MIG-0b77"]), ("", [])]
)
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
    end(has["has 7 sees 7\n"])
    assert third.stdout.readline() == "has 7 sees 7\n"
    assert end(third) == "", "it says more than one line"


def test_the_device_of_a_killed_job_is_free_at_once(hold):
    one, other = hold(), hold()
    names = [each.stdout.readline().split()[1] for each in (one, other)]
    third = hold()
    assert third.stdout.readline().startswith("waits")
    begun = time.monotonic()
    one.kill()
    assert third.stdout.readline().split()[1] == names[0]
    assert time.monotonic() - begun < 3


@pytest.mark.slow
def test_several_devices_are_had_at_once_or_not_at_all(hold):
    one = hold()
    assert one.stdout.readline() == "has 3 sees 3\n"
    both = hold(2)
    assert both.stdout.readline() == "waits for 2 GPUs; other jobs compute on 3, 7\n"
    # One that wants the other device, and those alone, is not kept from it.
    apart = hold(**{VISIBLE: "7"})
    assert apart.stdout.readline() == "has 7 sees 7\n"
    # One that comes later and would take one of both waits its turn.
    late = hold()
    assert late.stdout.readline() == "waits for a GPU; other jobs compute on 3, 7\n"
    end(apart)
    end(one)
    assert both.stdout.readline() == "has 3 7 sees 3,7\n"
    end(both)
    assert late.stdout.readline().startswith("has ")


def test_a_job_that_wants_more_than_there_are_has_all(hold):
    assert hold(5).stdout.readline() == "has 3 7 sees 3,7\n"


def test_as_many_jobs_share_a_device_as_the_build_says(hold):
    found = [hold(**{SHARED: "2"}).stdout.readline().split()[1] for _ in range(4)]
    assert found[:2] == found[2:] == ["3", "7"], "those with the fewest jobs come first"
    assert hold(**{SHARED: "2"}).stdout.readline().startswith("waits")


def test_what_a_job_with_a_lease_starts_has_no_other():
    with leased(1, print) as first:
        assert first == ["3"] and os.environ[VISIBLE] == "3"
        with leased(1, print) as second:
            assert second == [] and os.environ[VISIBLE] == "3"
    assert os.environ[VISIBLE] == "3,7" and LEASED not in os.environ


@pytest.mark.parametrize("name", devices.SCHEDULED)
def test_what_a_scheduler_gives_a_job_is_left_alone(name, hold, monkeypatch):
    monkeypatch.setenv(name, "123")
    assert hold().stdout.readline() == "has sees 3,7\n"
    # Unless the build itself runs in that job, and so the jobs of the build share its devices.
    monkeypatch.setenv(ALLOCATION, devices.allocation())
    one, other = hold(), hold()
    assert {each.stdout.readline() for each in (one, other)} == BOTH
    # Device 3 is another one in another job of the scheduler.
    monkeypatch.setenv(name, "124")
    assert hold().stdout.readline() == "has sees 3,7\n"
    monkeypatch.setenv(ALLOCATION, devices.allocation())
    assert hold().stdout.readline() == "has 3 sees 3\n"


def test_where_there_is_none_and_where_none_is_wanted_nothing_is_leased(tmp_path, monkeypatch):
    with leased(0, print) as found:
        assert found == [] and os.environ[VISIBLE] == "3,7"
    monkeypatch.setenv(VISIBLE, "")
    with leased(1, print) as found:
        assert found == [] and os.environ[VISIBLE] == ""
    monkeypatch.delenv(VISIBLE)
    monkeypatch.setenv("PATH", str(tmp_path))
    with leased(1, print) as found:
        assert found == [] and VISIBLE not in os.environ
    assert not list(tmp_path.iterdir())


def test_a_folder_of_another_user_is_not_taken(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    folder = tmp_path / f"ptq-dynamics-devices-{os.getuid()}"
    folder.symlink_to("elsewhere")
    with pytest.raises(Problem, match="is not a folder of this user"), leased(1, print):
        pass
    assert not list((tmp_path / "elsewhere").iterdir())


# Jobs


@pytest.fixture
def here(workspace, tmp_path):
    copy_results(workspace.folder, tmp_path, [workspace.plan.corpora.corpus("main").folder])
    return Workspace(tmp_path, workspace.plan)


def begin(here, job, *options):
    spec = job_file(here.folder, specification(job))
    command = [sys.executable, "-m", "ptq_dynamics.engine.run", "--job", spec, *options]
    return Popen(command, cwd=here.folder, stderr=PIPE, text=True)


def busy():
    """The devices that somebody has leased."""
    folder = Path(tempfile.gettempdir()) / f"ptq-dynamics-devices-{os.getuid()}"
    found = set()
    for path in folder.glob("*-0.lock"):
        file = devices._File(path)
        if not file.lock():
            found.add(path.name.partition("-")[0])
        file.close()
    return found


@pytest.mark.slow
def test_a_job_waits_for_a_device_says_so_in_its_log_and_then_runs(here, hold):
    one, other = hold(), hold()
    names = [each.stdout.readline().split()[1] for each in (one, other)]
    job = here.plan.trajectories.train("trunk")
    process = begin(here, job, "--devices", "1", "--counted")
    log = here.folder / log_of(job)
    line = "waits for a GPU; other jobs compute on 3, 7\n"
    wait_until(lambda: log.exists() and log.read_text().endswith(line))
    assert not list((here.folder / job.folder).glob(".work-*")), "it computes"
    end(one)
    wait_until(lambda: names[0] in busy())
    said = process.communicate()[1]
    assert process.returncode == 0 and said.count(line) == 1, said
    assert "done in" not in said, "the build says that"
    assert ": done in " in log.read_text()
    assert busy() == {names[1]}


@pytest.mark.slow
def test_a_job_that_is_interrupted_while_it_waits_ends_in_one_line(here, hold):
    holders = [hold(), hold()]
    assert all(each.stdout.readline().startswith("has") for each in holders)
    process = begin(here, here.plan.trajectories.train("trunk"), "--devices", "1")
    assert "waits for a GPU" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=15)[1]
    assert process.returncode == 1 and said.count("\n") == 1
    assert "interrupted; run the same command again to go on" in said


@pytest.mark.slow
def test_a_job_in_the_warm_process_leases_one_of_those_that_its_client_sees(
    here, hold, monkeypatch, tmp_path_factory
):
    """That is known as a child is forked, not as the warm process begins."""
    # The path of a socket must be short.
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.getbasetemp()))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = dict(os.environ)
    launch.start({"torch"})
    server = launch._servers.pop()
    try:
        wait_until(lambda: os.path.exists(os.environ[client.VARIABLE]), "no warm process listens")
        os.environ[VISIBLE] = "4,5"
        first = hold()
        assert first.stdout.readline() == "has 4 sees 4\n"
        job = here.plan.trajectories.train("trunk")
        process = begin(here, job, "--devices", "1")
        seen = set()
        wait_until(lambda: seen.update(busy() - {"4"}) or process.poll() is not None)
        assert process.wait() == 0, process.stderr.read()
        assert seen == {"5"} and busy() == {"4"}
    finally:
        server.stdin.close()
        server.wait(timeout=20)
        os.environ.clear()
        os.environ.update(before)


@pytest.mark.slow
def test_a_job_that_is_killed_frees_its_device(here):
    job = here.plan.trajectories.train("trunk")
    process = begin(here, job, "--devices", "1")
    wait_until(lambda: busy() == {"3"})
    process.kill()
    process.wait()
    wait_until(lambda: not busy(), patience=3)


AGAIN = """
import sys
from pathlib import Path
from ptq_dynamics.engine import restore
sys.exit(restore.again(Path(sys.argv[1]), "compare"))
"""


@pytest.mark.slow
def test_what_is_made_again_for_a_job_without_a_device_leases_one(workspace, trunk, hold):
    """A job that draws, say, may need weights that were dropped."""
    holders = [hold(), hold()]
    assert all(each.stdout.readline().startswith("has") for each in holders)
    again = [sys.executable, "-c", AGAIN, str(Path(trunk.folder) / "record.json")]
    process = Popen(again, cwd=workspace.folder, stderr=PIPE, text=True)
    assert "waits for a GPU; other jobs compute on 3, 7" in process.stderr.readline()
    end(holders[0])
    said = process.communicate()[1]
    assert process.returncode == 0, said
