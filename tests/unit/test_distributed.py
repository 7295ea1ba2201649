"""Several processes train one run: the curve of one process, whole states, and one line at most."""

import contextlib
import csv
import json
import os
import signal
import sys
import time
from contextlib import chdir
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import ranks, record
from ptq_dynamics.engine.context import Context, Progress, Seat
from ptq_dynamics.engine.current import is_current
from ptq_dynamics.engine.restore import restore
from ptq_dynamics.engine.team import Team
from ptq_dynamics.engine.variables import GPUS, PROCESSES, SHARDING
from ptq_dynamics.provenance.accepting import accept
from ptq_dynamics.train import train
from ptq_dynamics.train.optimizers.state import state_tensors
from ptq_dynamics.train.ranks import RankTrainer, joined, share
from ptq_dynamics.train.ranks import run as train_together
from ptq_dynamics.train.settings import (
    ModelSettings,
    ObjectiveSettings,
    OptimizerSettings,
)
from ptq_dynamics.train.train import Trainer
from safetensors.torch import load_file
from support import (
    Workspace,
    artifacts,
    copy_results,
    differing,
    job_file,
    log_of,
    specification,
    wait_until,
)
from torch.multiprocessing import spawn

SLOW = pytest.mark.slow


@pytest.fixture
def here(workspace, tmp_path):
    """A workspace of its own with the corpus in it."""
    copy_results(workspace.folder, tmp_path, [workspace.plan.corpora.corpus("main").folder])
    return Workspace(tmp_path, workspace.plan)


@pytest.fixture
def together(monkeypatch):
    """Have jobs run in so many processes from now on."""

    def do(count, sharding="none"):
        monkeypatch.setenv(PROCESSES, str(count))
        monkeypatch.setenv(SHARDING, sharding)

    return do


def curve(folder):
    with (folder / train.CURVE).open(newline="") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def one_error(text):
    """The only error line of what a job printed."""
    lines = [line for line in text.splitlines() if line.startswith("error:")]
    assert len(lines) == 1 and "Traceback" not in text, text
    return lines[0]


def require_alike(found, expected, **tolerance):
    """Both are the same run, but for the last bits."""
    assert found.facts == expected.facts
    assert found.files.keys() == expected.files.keys()
    require_alike_curves(curve(found.folder), curve(expected.folder), **tolerance)


def require_alike_curves(found, expected, rel=1e-4):
    assert len(found) == len(expected) > 0
    for row, other in zip(found, expected, strict=True):
        assert row == pytest.approx(other, rel=rel)
        assert (row["step"], row["tokens"]) == (other["step"], other["tokens"])


# Shares of a batch


@given(st.integers(1, 40), st.integers(1, 9), st.none() | st.integers(1, 12))
def test_a_batch_is_shared_out_exactly(rows, count, most):
    batch = torch.arange(rows)
    given = [share(batch, Seat(rank, Team(count), Path()), most) for rank in range(count)]
    counted = [part for parts in given for part, weight in parts if weight]
    assert torch.equal(torch.cat(counted), batch)
    assert len({len(parts) for parts in given}) == 1, "all exchange equally often"
    assert all(len(part) <= (most or rows) for parts in given for part, _ in parts)
    assert all(len(part) >= 1 and weight in (0, 1) for parts in given for part, weight in parts)


# How many


@pytest.mark.parametrize(
    ("set_to", "expected"),
    [
        ({}, Team()),
        ({PROCESSES: "1", SHARDING: "full"}, Team()),
        ({PROCESSES: "3"}, Team(3)),
        ({PROCESSES: "2", SHARDING: "full"}, Team(2, "full")),
        ({PROCESSES: "2", GPUS: "8"}, Team(2)),
    ],
)
def test_who_runs_a_job_says_how_many_train_it(monkeypatch, set_to, expected):
    for name, value in set_to.items():
        monkeypatch.setenv(name, value)
    assert ranks.team(train) == expected
    assert ranks.team(ranks) == Team(), "no stage that several processes can do"


@pytest.mark.parametrize(("visible", "expected"), [(0, 1), (1, 1), (4, 4), (9, 8)])
def test_a_scale_takes_the_gpus_that_are_visible(monkeypatch, visible, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    monkeypatch.setenv(GPUS, "8")
    assert ranks.team(train) == Team(expected)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (PROCESSES, "two", "PTQ_DYNAMICS_PROCESSES=two is no number of processes"),
        (PROCESSES, "0", "set it to 1 or more"),
        (SHARDING, "half", "PTQ_DYNAMICS_SHARDING=half is none of none, full"),
        (PROCESSES, "5", "asks for more than the 4 GPUs that are visible"),
    ],
)
def test_what_makes_no_sense_is_a_problem(monkeypatch, name, value, words):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv(PROCESSES, "2")
    monkeypatch.setenv(name, value)
    with pytest.raises(Problem, match=words):
        ranks.team(train)


def test_no_specification_knows_of_it(workspace, together):
    job = workspace.plan.trajectories.train("trunk")
    before = job.spec()
    together(2, "full")
    assert job.spec() == before
    assert not any("ranks" in name for name in job.made_with.definitions)


def test_a_batch_has_a_sequence_for_each(workspace, tmp_path):
    settings, team = workspace.plan.trajectories.train("trunk").settings, Team(5)
    context = Context("trunk", settings, {}, tmp_path, tmp_path, Progress("test"))
    with pytest.raises(Problem, match="a batch of 4 sequences cannot be shared out to 5 processes"):
        train_together(context, Seat(0, team, tmp_path / "meeting"))


# Updates and states

LLAMA = {"layers": 2, "width": 32, "heads": 2, "key_value_heads": 1, "feedforward": 64}
LLAMA |= {"tied": True, "rotary_base": 10000.0}
SLOWLY = {"beta3": 0.99, "alpha": 2.0, "t_alpha_beta3": 4}
CASES = {
    "adamw": {"micro_batch": 1},
    "adamw_independent": {"optimizer": "adamw_independent"},
    "adamc full": {"optimizer": "adamc", "micro_batch": 1},
    "ademamix": {"optimizer": "ademamix", "more": SLOWLY},
    "ademamix full": {"optimizer": "ademamix", "more": SLOWLY},
    "answers full": {"objective": "answers", "micro_batch": 2},
    "preferences": {"objective": "preferences"},
    "preferences full": {"objective": "preferences"},
    "tied full": {"tied": True},
}
ROWS, STEPS = 3, 4  # uneven in two processes


def case_settings(settings, case):
    """The trunk's settings with what a case has instead."""
    # eps well above the noise of gradients that are zero, such as those of biases of keys.
    chosen = asdict(settings.optimizer.settings)
    optimizer = {**chosen, "eps": 1e-6, **case.get("more", {})}
    about = {"anchor": "zero", "beta": 0.5} if case.get("objective") == "preferences" else {}
    model = ModelSettings("llama", LLAMA, settings.context, settings.model.vocabulary)
    return replace(
        settings,
        batch=ROWS,
        micro_batch=case.get("micro_batch"),
        model=model if case.get("tied") else settings.model,
        optimizer=OptimizerSettings(case.get("optimizer", "adamw"), optimizer),
        objective=ObjectiveSettings(case.get("objective", "language"), about),
    )


def batches(settings):
    """Batches as the objective has them, of random tokens; equal in all processes."""
    shape = {"language": (), "answers": (2,), "preferences": (2, 2)}[settings.objective.module]
    generator = torch.Generator().manual_seed(0)
    for _ in range(2 * STEPS):
        size = (ROWS, *shape, settings.context + 1)
        batch = torch.randint(0, settings.model.vocabulary, size, generator=generator)
        if shape:
            batch[..., 1, :] %= 2  # which of them count
        yield batch


def compare_with_one(rank, folder, settings, tokenizer, checkpoint):
    """In one of two processes: every case against a trainer that is alone."""
    seats = {each: Seat(rank, Team(2, each), folder / "meeting") for each in ("none", "full")}
    with joined(seats["none"]) as words:
        for number, (name, case) in enumerate(CASES.items()):
            found = case_settings(settings, case)
            start = checkpoint if found.objective.module == "preferences" else None
            seat = seats["full" if name.endswith("full") else "none"]
            alone = Trainer(found, folder, tokenizer, start)
            shared = RankTrainer(found, folder, tokenizer, start, seat, words)
            given = list(batches(found))
            require_alike_updates(name, shared, alone, given[:STEPS])
            if seat.team.sharding == "full":
                kept = sum(p.to_local().numel() for p in shared.model.parameters())
                assert kept <= 0.6 * sum(p.numel() for p in alone.model.parameters()), name
            states = [folder / f"{number}-{rank}-{kind}.safetensors" for kind in ("one", "two")]
            alone.save(states[0])
            shared.save(states[1])
            saved = [load_file(path) for path in states]
            assert saved[0].keys() == saved[1].keys(), name
            assert all(saved[0][key].shape == saved[1][key].shape for key in saved[0]), name
            # Each goes on from what the other one saved.
            later = Trainer(replace(found, seed=5), folder, tokenizer, start)
            later.load(states[1])
            joint = RankTrainer(replace(found, seed=5), folder, tokenizer, start, seat, words)
            joint.load(states[0])
            assert later.step == joint.step == STEPS
            moments = [state_tensors(each._optimizer) for each in (joint, alone)]
            assert all(torch.equal(value, moments[1][key]) for key, value in moments[0].items())
            require_alike_updates(name, joint, later, given[STEPS:])
            words.wait()


def require_alike_updates(name, one, other, given):
    for batch in given:
        found, expected = one.update(batch), other.update(batch)
        assert float(found[0]) == pytest.approx(float(expected[0]), rel=1e-4), name
        assert float(found[1]) == pytest.approx(float(expected[1]), rel=1e-3), name
    weights = [each.model.state_dict() for each in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    for key, value in weights[0].items():
        gap = (value - weights[1][key]).abs().max()
        assert gap < 1e-2 * one.settings.schedule.peak, (name, key, float(gap))


@SLOW
def test_every_kind_of_run_is_that_of_one_process(workspace, corpus, trunk, tmp_path):
    settings = workspace.plan.trajectories.train("trunk").settings
    tokenizer, checkpoint = corpus.subfolder("tokenizer"), trunk.subfolder("step-0000024")
    spawn(compare_with_one, (tmp_path, settings, tokenizer, checkpoint), nprocs=2)


# Jobs


@SLOW
def test_two_processes_make_what_one_makes(here, trunk, together, capfd, monkeypatch):
    job = here.plan.trajectories.train("trunk")
    together(2)
    # However fast they are.
    monkeypatch.setattr(ranks, "Progress", partial(Progress, interval=0.0))
    found = here.build(job)
    assert not [line for line in capfd.readouterr().err.splitlines() if "trunk" not in line]
    require_alike(found, trunk)
    for name in ("step-0000002", "step-0000024"):
        one, other = (load_file(m.folder / name / "model.safetensors") for m in (found, trunk))
        assert one.keys() == other.keys()
        for key in one:
            # Gradients of biases of keys are zero, but for the last bits that moments blow up.
            if not key.endswith("query_key_value.bias"):
                assert torch.allclose(one[key], other[key], atol=1e-4), key
    path = here.folder / job.paths.record
    account = record.read(path)
    assert account.processes.teams == (Team(2),)
    assert account.by == "2 processes"
    assert account.tokens == 24 * 4 * 16
    assert "step 2/24" in (here.folder / log_of(job)).read_text()

    # What was dropped comes back to the same bits, whatever is asked for now.
    before = artifacts(here.folder / job.folder)
    found.drop([name for name in found.files if name.startswith("step-0000024/")], "x")
    together(1)
    with chdir(here.folder):
        restore(here.manifest(job))
        assert is_current(specification(job))
    assert not differing(before, artifacts(here.folder / job.folder))

    # Other code for several processes makes it stale, until someone says that it is as good.
    content = json.loads(path.read_text())
    content["processes"]["code"] = "0" * 32
    path.write_text(record.sealed(content))
    with chdir(here.folder):
        assert not is_current(specification(job))
        (line,) = accept([job], "the same results", {})
        assert line.endswith("train.ranks changed")
        assert is_current(specification(job))


@SLOW
def test_a_run_goes_on_with_more_processes(here, trunk, together, monkeypatch):
    job = here.plan.trajectories.train("trunk")
    plain = Trainer.update
    with monkeypatch.context() as patched:
        patched.setattr(train.Pace, "state_is_due", lambda _: True)
        patched.setattr(
            Trainer, "update", lambda own, batch: plain(own, batch) if own.step < 13 else 1 / 0
        )
        assert here.attempt(job) == 1
    together(3, "full")
    found = here.build(job, micro_batch=None)
    require_alike(found, trunk)
    assert "going on from step 13" in (here.folder / log_of(job)).read_text()
    account = record.read(here.folder / job.paths.record)
    assert account.by == "1 process, then 3 processes, weights shared out"


LAST = 400


def longer(job):
    """What makes a run so long that it can be interrupted, and so slow that it stays alike."""
    schedule = asdict(replace(job.settings.schedule, peak=1e-3))
    steps = {"last": LAST, "checkpoint_steps": [LAST], "state_steps": []}
    return {**steps, "schedule": schedule, "log_every": 1}


def start(here, spec, count):
    command = [
        sys.executable,
        "-m",
        "ptq_dynamics.engine.run",
        "--job",
        job_file(here.folder, spec),
    ]
    variables = {**os.environ, PROCESSES: str(count)}
    return Popen(command, cwd=here.folder, env=variables, stderr=PIPE, text=True)


def rank_of(process, number):
    """One of the processes that train, of a job, if it is there."""
    for each in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            command = each.cmdline()
            is_rank = command[1:3] == ["-m", "ptq_dynamics.engine.rank"]
            if is_rank and command[-1].endswith(f"-{number}"):
                return each
    return None


def under_way(here, job, pattern):
    return list((here.folder / job.folder).glob(f".work-*/{pattern}"))


def rows(here, job):
    return [row for path in under_way(here, job, "out/curve.csv") for row in path.open()][1:]


@SLOW
def test_a_killed_rank_ends_the_job_and_one_process_goes_on(here, together):
    job = here.plan.trajectories.train("trunk")
    process = start(here, specification(job, **longer(job)), 2)
    wait_until(lambda: rows(here, job), "it does not train")
    begun = psutil.Process(process.pid).children(recursive=True)
    victim = rank_of(process, 1)
    victim.suspend()
    time.sleep(5.5)  # after which the state is due
    assert len(rows(here, job)) < LAST, "the other one does not wait"
    victim.resume()
    wait_until(lambda: under_way(here, job, "scratch/state-*"), "there is no state")
    victim.kill()
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 1
    assert "process 1 of the job was killed (out of memory?); run the same" in one_error(said)
    assert not psutil.wait_procs(begun, timeout=10)[1], "something goes on"
    together(1)
    found = here.build(job, **longer(job))
    assert record.read(here.folder / job.paths.record).by == "2 processes, then 1 process"
    went_on = (here.folder / log_of(job)).read_text().split("going on from step ")[1]
    assert 0 < int(went_on.split()[0]) < LAST
    joint = curve(found.folder)
    alone = here.build(job, **longer(job))
    assert record.read(here.folder / job.paths.record).processes is None
    assert found.facts == alone.facts
    require_alike_curves(joint, curve(alone.folder), rel=1e-3)


@SLOW
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_processes_end_with_the_job(here, number):
    job = here.plan.trajectories.train("trunk")
    process = start(here, specification(job, **longer(job)), 2)
    wait_until(lambda: all(rank_of(process, number) for number in (0, 1)), "they do not start")
    begun = psutil.Process(process.pid).children(recursive=True)
    assert len(begun) >= 4, "two processes, each with a guard"
    process.send_signal(number)
    said = process.communicate(timeout=30)[1]
    assert not psutil.wait_procs(begun, timeout=10)[1], "something goes on"
    if number == signal.SIGTERM:
        assert "interrupted; run the same command again" in one_error(said)


@SLOW
def test_a_run_that_diverges_says_so_once(here, together, capfd):
    job = here.plan.trajectories.train("trunk")
    together(2)
    schedule = asdict(replace(job.settings.schedule, peak=1e30))
    assert here.attempt(job, schedule=schedule, log_every=1) == 1
    assert "diverged: the loss is nan at step" in one_error(capfd.readouterr().err)
