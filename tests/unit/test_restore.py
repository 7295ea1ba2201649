"""Results known but absent: dropped files come back when a job needs them, as they were."""

import json
import os
import signal
import sys
import time
from contextlib import chdir
from subprocess import PIPE, Popen

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.current import Results
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.engine.verified import Verifier
from ptq_dynamics.train.settings import DropSettings
from support import Workspace, artifacts, copy_results, differing, job_file, log_of, specification

pytestmark = pytest.mark.slow


@pytest.fixture
def here(workspace, trunk, rtn, tmp_path):
    """A workspace with the trunk, and the trunk rounded to 3 bits."""
    plan = workspace.plan
    jobs = [plan.corpora.corpus(), plan.trajectories.train("trunk"), rounded(plan)]
    copy_results(workspace.folder, tmp_path, [job.folder for job in jobs])
    return Workspace(tmp_path, plan)


def rounded(plan):
    return plan.quantization.quantize("trunk", "rtn3")


def drop(here, job, kept=()):
    """Drop the weights of a result but for some checkpoints; what stays."""
    inputs = {"result": [job.manifest]}
    folder = f"results/smoke/drop/{job.name.replace(' ', '-')}"
    settings = DropSettings(kept, f"{folder}/manifest.json")
    dropping = Job("train.drop", job.name, folder, inputs, settings)
    before = artifacts(here.folder / job.folder)
    here.build(dropping)
    after = artifacts(here.folder / job.folder)
    assert here.manifest(job).state == "absent"
    assert (here.folder / dropping.manifest).exists()
    return {name for name in before if name in after}


def test_weights_are_dropped_and_what_is_small_stays(here, trunk):
    job = here.plan.trajectories.train("trunk")
    stays = drop(here, job, kept=("step-0000012",))
    weights = {name for name in trunk.files if name.endswith(".safetensors")}
    assert weights - stays == weights - {"step-0000012/model.safetensors"}
    assert set(trunk.files) - weights < stays and "manifest.json" in stays
    assert here.manifest(job).text() == trunk.text()


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_job_gets_what_was_dropped_as_it_was(here, trunk, threads, monkeypatch):
    """Also where it has another number of threads than the job that makes it again."""
    job, reader = here.plan.trajectories.train("trunk"), here.plan.losses.evaluate("trunk", "fp")
    complete = artifacts(here.folder / job.folder)
    wanted = artifacts(here.build(reader).folder)
    drop(here, job)
    times = {name: (here.folder / job.folder / name).stat().st_mtime_ns for name in KEPT}
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setenv("MKL_NUM_THREADS", threads)
    assert not differing(wanted, artifacts(here.build(reader).folder))
    assert here.manifest(job).state == "present"
    assert not list(here.folder.glob("results/smoke/drop/*/manifest.json")), "never dropped again"
    assert not differing(complete, artifacts(here.folder / job.folder))
    for name, before in times.items():
        assert (here.folder / job.folder / name).stat().st_mtime_ns == before, name


def test_records_follow_code_that_moved(here):
    """The record of dropped weights names a module that is elsewhere now."""
    job, reader = here.plan.trajectories.train("trunk"), here.plan.losses.evaluate("trunk", "fp")
    drop(here, job)
    path = here.folder / job.paths.record
    content = json.loads(path.read_text())
    content["job"]["stage"] = "train.before"
    path.write_text(record.sealed(content))
    with pytest.raises(AssertionError, match=r"no module ptq_dynamics\.trajectories\.before"):
        here.build(reader)
    with chdir(here.folder):
        results = Results(Verifier())
        assert results.is_current(job.specified(), job.needs, job.paths)
        results.note_moves()
    here.build(reader)
    assert here.manifest(job).state == "present"


KEPT = ("manifest.json", "record.json", "curve.csv")


def test_what_it_was_made_from_comes_back_too(here):
    """A quantized checkpoint of a dropped checkpoint."""
    first, second = here.plan.trajectories.train("trunk"), rounded(here.plan)
    reader = here.plan.losses.evaluate("trunk", "rtn3")
    wanted = artifacts(here.build(reader).folder)
    drop(here, first)
    drop(here, second)
    assert not differing(wanted, artifacts(here.build(reader).folder))
    assert [here.manifest(job).state for job in (first, second)] == ["present", "present"]


def test_what_was_dropped_twice_comes_back_twice(here):
    job, reader = rounded(here.plan), here.plan.losses.evaluate("trunk", "rtn3")
    wanted = artifacts(here.build(reader).folder)
    for _ in range(2):
        drop(here, job)
        assert not differing(wanted, artifacts(here.build(reader).folder))


def start(here, job):
    file = job_file(here.folder, specification(job))
    command = [sys.executable, "-m", "ptq_dynamics.engine.run", "--job", file]
    return Popen(command, cwd=here.folder, stderr=PIPE, text=True, start_new_session=True)


def test_readers_at_once_have_it_made_once(here):
    job = here.plan.trajectories.train("trunk")
    readers = [here.plan.losses.evaluate("trunk", "fp"), rounded(here.plan)]
    wanted = [artifacts(here.build(reader).folder) for reader in readers]
    drop(here, job)
    said = [process.communicate()[1] for process in [start(here, reader) for reader in readers]]
    assert "".join(said).count("train.train trunk seed 100: done") == 1, said
    for reader, content in zip(readers, wanted, strict=True):
        assert not differing(content, artifacts(here.folder / reader.folder))


def test_a_reader_that_is_killed_loses_nothing(here):
    job, reader = here.plan.trajectories.train("trunk"), here.plan.losses.evaluate("trunk", "fp")
    complete = artifacts(here.folder / job.folder)
    drop(here, job)
    process = start(here, reader)
    end = time.monotonic() + 120
    while not list((here.folder / job.folder).glob(".work-*/out/step-*")):
        assert process.poll() is None and time.monotonic() < end, "nothing is made again"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    left = artifacts(here.folder / job.folder)
    assert all(data == complete.get(name, data) for name, data in left.items())
    here.build(reader)
    assert not differing(complete, artifacts(here.folder / job.folder))


def other_facts(here, job):
    """A manifest, as another processor might have made it."""
    path = here.folder / job.manifest
    content = json.loads(path.read_text())
    content["facts"]["parameters"] += 1
    path.write_text(json.dumps(content, sort_keys=True, indent=1) + "\n")


def other_code(here, job):
    path = here.folder / job.paths.record
    content = json.loads(path.read_text())
    content["job"]["code"] = "0" * 64
    path.write_text(record.sealed(content))


def edited_record(here, job):
    path = here.folder / job.paths.record
    path.write_text(path.read_text().replace('"seconds": ', '"seconds": 1'))


def no_record(here, job):
    (here.folder / job.paths.record).unlink()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (other_facts, "came out different from its manifest"),
        (other_code, "is not the code that this job was planned with"),
        (no_record, "record.json is missing"),
        (edited_record, "record.json is not as it was written"),
    ],
    ids=["different", "code", "record", "edited"],
)
def test_what_cannot_be_made_again_is_one_line(here, capfd, harm, words):
    job, reader = here.plan.trajectories.train("trunk"), here.plan.losses.evaluate("trunk", "fp")
    harm(here, job)
    drop(here, job)
    left = artifacts(here.folder / job.folder)
    assert here.attempt(reader) == 1
    said = capfd.readouterr().err
    (line,) = [line for line in said.splitlines() if line.startswith("error:")]
    assert line.startswith("error: measure.loss trunk seed 100 fp: ") and words in line
    assert "Traceback" not in said
    assert words in (here.folder / log_of(reader)).read_text()
    assert not differing(left, artifacts(here.folder / job.folder))
    assert not (here.folder / reader.manifest).exists()


def test_a_dropped_file_that_nobody_makes_again_is_a_problem_that_says_so(here):
    job = here.plan.trajectories.train("trunk")
    drop(here, job)
    with chdir(here.folder), pytest.raises(Problem, match="was dropped") as caught:
        manifest.read(here.folder / job.manifest).subfolder("step-0000012")
    assert "\n" not in str(caught.value)
