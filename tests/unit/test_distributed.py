"""Several processes train one run: the curve of one process, whole states, and one line at most."""

import os
import sys
from contextlib import nullcontext
from subprocess import PIPE, Popen
from unittest.mock import Mock

import pandas as pd
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.base.components import kinds_in
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import execute, record
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.train import processes, train
from ptq_dynamics.train.objectives import Objective
from ptq_dynamics.train.optimizers import Optimizer
from ptq_dynamics.train.processes import GPUS, PROCESSES, Team
from ptq_dynamics.train.trainer import Trainer
from ptq_dynamics.trajectories.trajectory import step_id
from support import ROOT, job_file, specification, wait_until


@pytest.fixture
def here(workspace, tmp_path):
    """A workspace of its own with the corpus in it."""
    return workspace.beside(tmp_path)


def curve(folder):
    return pd.read_csv(folder / train.CURVE)


@given(st.integers(1, 40), st.integers(1, 9), st.none() | st.integers(1, 12))
def test_a_batch_is_shared_out_exactly(rows, count, most):
    count = min(count, rows)
    teams = [Team(rank, count) for rank in range(count)]
    given = [team.parts(torch.tensor(team.rows(rows)), rows, most) for team in teams]
    counted = [part for parts in given for part, weight in parts if weight]
    assert torch.equal(torch.cat(counted), torch.arange(rows))
    assert len({len(parts) for parts in given}) == 1, "all exchange equally often"
    assert all(len(part) <= (most or rows) for parts in given for part, _ in parts)


@pytest.mark.parametrize(("device", "count"), [("cpu", 8), ("cuda", 1)])
def test_a_restored_run_has_its_processes_or_the_gpus_here(device, count, monkeypatch):
    made, started = Mock(device=Mock(kind=device), threads=1, processes=8), Mock()
    monkeypatch.setattr(execute.record, "read", lambda _: made)
    monkeypatch.setattr(execute.subprocesses, "run", started)
    execute.again(ROOT, "restore")
    monkeypatch.setattr(os, "environ", started.call_args.args[1])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count % 8)
    assert processes.wanted(8) == count


def test_who_runs_a_job_says_how_many_train_it(monkeypatch):
    for exactly, gpus, visible, expected in (
        *(("", "", 4, 1), ("2", "8", 4, 2), ("", "8", 0, 1), ("", "8", 9, 8)),
        *(("two", "", 0, None), ("5", "", 4, None), ("9", "", 0, None)),
    ):
        monkeypatch.setattr(torch.cuda, "device_count", lambda visible=visible: visible)
        monkeypatch.setenv(PROCESSES, exactly)
        monkeypatch.setenv(GPUS, gpus)
        with nullcontext() if expected else pytest.raises(Problem, match=PROCESSES):
            assert processes.wanted(8) == expected


KINDS = [each for base in (Objective, Optimizer) for each in kinds_in(base.__module__, base)]
ALONE, TEAM = (1, None), (2, 1)  # processes, and rows at once


def example(kind):
    """A component of a kind, with a value in every field that has no default."""

    def value(field):
        least = field.get("minimum", field.get("exclusiveMinimum", 0) + 1)
        usual = least if field.get("type") == "integer" else 0.1
        parts, choices = field.get("prefixItems"), field.get("enum", [usual])
        return [value(each) for each in parts] if parts else field.get("const", choices[0])

    fields = kind.model_json_schema()["properties"].items()
    return kind(**{name: value(field) for name, field in fields if "default" not in field})


def train_all(context, team):
    """Train several runs, of which each has settings and inputs."""
    for name, (settings, inputs) in context.settings.items():
        out, scratch = context.out / name, context.scratch / name
        for folder in (out, scratch):
            folder.mkdir(parents=True, exist_ok=True)
        train.work(Context(name, settings, inputs, out, scratch, Progress(name)), team)
    return {}


@pytest.fixture(scope="module")
def curves(workspace, trunk, tmp_path_factory):
    """Training curves of a run of each kind, by processes and rows at once."""
    plans, curves = workspace.plan.trajectories, {}
    corpora = [workspace.make(plans.corpus(name)) for name in ("main", "questions")]
    changes = {"batch": 5, "context": 99, "start": step_id(24), "last": 6, "log_every": 1}
    changes |= {"state_steps": (), "checkpoint_steps": (6,)}
    for count, most in (ALONE, TEAM):
        runs, folder = {}, tmp_path_factory.mktemp("runs")
        for kind in KINDS:
            part = example(kind)
            own = {"objective" if isinstance(part, Objective) else "optimizer": part}
            corpus = corpora[getattr(part, "of_dialogues", False)]
            settings = plans.train("trunk").settings.model_copy(
                update={**changes, **own, "micro_batch": most}
            )
            runs[kind.__name__] = settings, {"corpus": [corpus], "after": [trunk]}
        context = Context("runs", runs, {}, folder, folder / "scratch", Progress("runs"))
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv(PROCESSES, str(count))
            processes.run(train_all, context, changes["batch"])
        curves[count, most] = {name: curve(folder / name) for name in runs}
    return curves


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_run_does_not_depend_on_processes_and_parts(curves, kind):
    found, expected = (curves[each][kind.__name__] for each in (TEAM, ALONE))
    # Rounding is that of the processor: one differs by 1.3e-4, in a norm that fell to a tenth.
    pd.testing.assert_frame_equal(found, expected, rtol=1e-3)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(here, trunk, monkeypatch):
    job, plain = here.plan.trajectories.train("trunk"), Trainer.update
    with monkeypatch.context() as patched:
        patched.setattr(train, "EVERY", 0)
        patched.setattr(train, "BYTES", float("inf"))
        patched.setattr(
            Trainer, "update", lambda own, batch: plain(own, batch) if own.step < 13 else 1 / 0
        )
        assert here.attempt(job) == 1
    monkeypatch.setenv(PROCESSES, "2")
    found = here.build(job)
    assert found.facts == {**trunk.facts, "processes": 2}
    assert record.read(here.folder / job.paths.record).processes == 2
    pd.testing.assert_frame_equal(curve(found.folder), curve(trunk.folder), rtol=1e-4)
    assert "resumes from step 13" in (here.folder / job.paths.log).read_text()


@pytest.mark.slow
def test_all_processes_end_with_one_line(here):
    job = here.plan.trajectories.train("trunk")
    steps = {"last": 4000, "checkpoint_steps": [4000], "state_steps": [], "log_every": 1}
    schedule = job.settings.schedule.model_dump() | {"peak": 1e-3}
    spec = job_file(here.folder, specification(job, schedule=schedule, **steps))
    process = Popen(
        [sys.executable, "-m", "ptq_dynamics.engine.run", spec],
        cwd=here.folder,
        env={**os.environ, PROCESSES: "2", "PYTHONPATH": str(ROOT / "workflow")},
        stderr=PIPE,
        text=True,
    )
    work = here.folder / job.folder
    wait_until(lambda: [*work.glob(".work-*/out/curve.csv")], "it does not train", patience=400)
    children = psutil.Process(process.pid).children(recursive=True)
    every = [each for each in children if "spawn_main" in " ".join(each.cmdline())]
    assert len(every) == 2
    max(every, key=lambda each: each.pid).kill()
    said = process.communicate(timeout=120)[1]
    assert not psutil.wait_procs(every, timeout=10)[1], "something goes on"
    (error,) = [line for line in said.splitlines() if line.startswith("error:")]
    assert "of the job was killed (out of memory?); run the same" in error
    assert "Traceback" not in said
