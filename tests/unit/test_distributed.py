"""Several processes train one run: the curve of one process, whole states, and one line at most."""

import csv
import os
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from subprocess import PIPE, Popen

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.train import processes, train
from ptq_dynamics.train.processes import GPUS, PROCESSES, Team
from ptq_dynamics.train.train import Trainer
from safetensors.torch import load_file
from support import Workspace, copy_results, job_file, log_of, specification, wait_until

SLOW = pytest.mark.slow


@pytest.fixture
def here(workspace, tmp_path):
    """A workspace of its own with the corpus in it."""
    copy_results(workspace.folder, tmp_path, [workspace.plan.corpora.corpus("main").folder])
    return Workspace(tmp_path, workspace.plan)


def curve(folder):
    with (folder / train.CURVE).open(newline="") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def one_error(text):
    """The only error line of what a job printed."""
    lines = [line for line in text.splitlines() if line.startswith("error:")]
    assert len(lines) == 1 and "Traceback" not in text, text
    return lines[0]


def require_alike(found, expected, rel):
    assert len(found) == len(expected) > 0
    for row, other in zip(found, expected, strict=True):
        assert row == pytest.approx(other, rel=rel)


@given(st.integers(1, 40), st.integers(1, 9), st.none() | st.integers(1, 12))
def test_a_batch_is_shared_out_exactly(rows, count, most):
    batch = torch.arange(rows)
    given = [Team(rank, count).shares(batch, most) for rank in range(min(count, rows))]
    counted = [part for parts in given for part, weight in parts if weight]
    assert torch.equal(torch.cat(counted), batch)
    assert len({len(parts) for parts in given}) == 1, "all exchange equally often"
    assert all(len(part) <= (most or rows) for parts in given for part, _ in parts)


@pytest.mark.parametrize(
    ("set_to", "visible", "expected"),
    [
        ({}, 4, 1),
        ({PROCESSES: "3"}, 0, 3),
        ({PROCESSES: "2", GPUS: "8"}, 4, 2),
        ({GPUS: "8"}, 0, 1),
        ({GPUS: "8"}, 9, 8),
        ({PROCESSES: "two"}, 0, "PTQ_DYNAMICS_PROCESSES=two is no number of processes"),
        ({PROCESSES: "0"}, 0, "set it to 1 or more"),
        ({PROCESSES: "5"}, 4, "asks for more than the 4 GPUs that are visible"),
        ({PROCESSES: "9"}, 0, "a batch of 8 sequences cannot be shared out to 9 processes"),
    ],
)
def test_who_runs_a_job_says_how_many_train_it(monkeypatch, set_to, visible, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    for name, value in set_to.items():
        monkeypatch.setenv(name, value)
    if isinstance(expected, int):
        assert processes.wanted(8) == expected
    else:
        with pytest.raises(Problem, match=expected):
            processes.wanted(8)


@SLOW
@pytest.mark.parametrize("micro", [None, 1])
def test_two_processes_make_what_one_makes(here, trunk, monkeypatch, capfd, micro):
    """Of three sequences, shared out unevenly where parts are of one."""
    job, batch = here.plan.trajectories.train("trunk"), 4 if micro is None else 3
    single = trunk if micro is None else here.build(job, batch=batch, micro_batch=micro)
    expected, facts = curve(single.folder), dict(single.facts)
    first = load_file(single.folder / "step-0000002/model.safetensors")
    monkeypatch.setenv(PROCESSES, "2")
    found = here.build(job, batch=batch, micro_batch=micro)
    assert not [line for line in capfd.readouterr().err.splitlines() if "trunk" not in line]
    require_alike(curve(found.folder), expected, 1e-5 if micro is None else 1e-4)
    assert found.facts == {**facts, "processes": 2}
    assert record.read(here.folder / job.paths.record).by == "2 processes"
    for name, value in load_file(found.folder / "step-0000002/model.safetensors").items():
        # Gradients of biases of keys are zero, but for the last bits that moments blow up.
        if not name.endswith("query_key_value.bias"):
            assert torch.allclose(value, first[name], atol=1e-4), name


@SLOW
def test_a_run_goes_on_with_more_processes(here, trunk, monkeypatch):
    job, plain = here.plan.trajectories.train("trunk"), Trainer.update
    with monkeypatch.context() as patched:
        patched.setattr(train.Pace, "state_is_due", lambda _: True)
        patched.setattr(
            Trainer, "update", lambda own, batch: plain(own, batch) if own.step < 13 else 1 / 0
        )
        assert here.attempt(job) == 1
    monkeypatch.setenv(PROCESSES, "3")
    found = here.build(job)
    require_alike(curve(found.folder), curve(trunk.folder), 1e-4)
    assert "going on from step 13" in (here.folder / log_of(job)).read_text()


LAST = 400


def start(here, job):
    """A run in two processes that is long enough to be interrupted."""
    schedule = asdict(replace(job.settings.schedule, peak=1e-3))
    steps = {"last": LAST, "checkpoint_steps": [LAST], "state_steps": [], "log_every": 1}
    spec = specification(job, schedule=schedule, **steps)
    command = [sys.executable, "-m", "ptq_dynamics.engine.run", "--job"]
    return Popen(
        [*command, job_file(here.folder, spec)],
        cwd=here.folder,
        env={**os.environ, PROCESSES: "2"},
        stderr=PIPE,
        text=True,
    )


def begun(here, job, process):
    """The processes that train, once they do."""

    def trains():
        return list((here.folder / job.folder).glob(".work-*/out/curve.csv"))

    wait_until(trains, "it does not train")
    found = []
    for each in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):
            if each.environ().get("RANK"):
                found.append(each)
    return found


@SLOW
@pytest.mark.parametrize("end", ["kill of one", "signal", "kill of all"])
def test_all_processes_end_with_one_line(here, end):
    job = here.plan.trajectories.train("trunk")
    process = start(here, job)
    every = begun(here, job, process)
    if end == "kill of one":
        max(every, key=lambda each: each.pid).kill()
    elif end == "signal":
        process.terminate()
    else:
        process.kill()
    said = process.communicate(timeout=60)[1]
    assert not psutil.wait_procs(every, timeout=10)[1], "something goes on"
    if end == "kill of one":
        assert "of the job was killed (out of memory?); run the same" in one_error(said)
    elif end == "signal":
        assert "interrupted; run the same command again" in one_error(said)


@SLOW
def test_a_run_that_is_called_back_saves_its_state(here, monkeypatch):
    job = here.plan.trajectories.train("trunk")
    monkeypatch.setenv(PROCESSES, "2")
    monkeypatch.setattr("ptq_dynamics.engine.signals.called_back", lambda: True)
    assert here.attempt(job) == os.EX_TEMPFAIL
    (state,) = (here.folder / job.folder).glob(".work-*/scratch/state-*")
    assert int(state.stem.split("-")[1]) < 24


@SLOW
def test_a_run_that_diverges_says_so_once(here, monkeypatch, capfd):
    job = here.plan.trajectories.train("trunk")
    monkeypatch.setenv(PROCESSES, "2")
    schedule = asdict(replace(job.settings.schedule, peak=1e30))
    assert here.attempt(job, schedule=schedule, log_every=1) == 1
    assert "diverged: the loss is nan at step" in one_error(capfd.readouterr().err)
