"""Records say what is due: not Snakemake's notes, nor times of files; and a failing build loses
nothing."""

import os
import shutil
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest
from project import TABLE, Project
from ptq_dynamics.engine import manifest, verified
from support import artifacts, differing

PACKAGE = "workflow/ptq_dynamics"
RUN = "results/smoke/train/rainbow-036/seed-101"
QUANTIZED = "results/smoke/quantize/rainbow-036/seed-101/gptq-4bit/all"
LOSSES = "results/smoke/evaluate/rainbow-036/seed-101/gptq-4bit/all"
# Of a job that runs; one that finds its result current says nothing.
DONE = ": done in "


@pytest.fixture(scope="module")
def copied(built, tmp_path_factory):
    """A fresh checkout, into which the results of another were copied; without their times."""
    project = Project.copy(tmp_path_factory.mktemp("records") / "project")
    for place in ("results", "figures"):
        ignored = shutil.ignore_patterns(".*")
        shutil.copytree(
            built.folder / place,
            project.folder / place,
            ignore=ignored,
            copy_function=shutil.copyfile,
        )
    return project


@pytest.fixture(autouse=True)
def before(copied):
    """All artifacts as they are and, but for a test that says otherwise, have to be in the end."""
    found = state(copied)
    yield found
    assert not differing(found, state(copied))
    assert copied.stale() == set(), "a test left something behind"


def state(project):
    return {
        f"{place}/{name}": data
        for place in ("results", "figures")
        for name, data in artifacts(project.folder / place).items()
        # What nothing is made by any more goes with the next build that has nothing to do.
        if not name.startswith("smoke/code/")
    }


def ran(said):
    """Stages and names of the jobs that did something."""
    return {line.partition(DONE)[0] for line in said.splitlines() if DONE in line}


def test_copied_results_are_current(copied):
    assert copied.planned() == set()
    assert "Nothing to be done" in copied.build()


def test_without_snakemakes_notes_the_fresh_stays_and_the_stale_is_rebuilt(copied):
    shutil.rmtree(copied.folder / ".snakemake")
    assert copied.stale() == set()
    with copied.edited(f"{PACKAGE}/figures/layouts/over_tokens.py") as (path,):
        path.write_text(path.read_text() + "\nassert True\n")
        assert "figure:fig04" in copied.stale() <= {f"figure:{name}" for name in copied.chosen}


def test_a_dry_run_writes_down_nothing(copied):
    shutil.rmtree(copied.folder / ".snakemake")
    for path in (copied.folder / "figures/smoke").iterdir():
        os.utime(path)
    assert copied.planned() == set()
    assert not list((copied.folder / ".snakemake").glob("ptq-dynamics*"))
    copied.build()


def test_a_missing_manifest_in_the_middle_is_made_again(copied):
    (copied.folder / QUANTIZED / "manifest.json").unlink()
    # With what follows, which finds its inputs as they were.
    assert copied.planned() == {
        "quantize:rainbow-036,101,gptq-4bit,all",
        "evaluate:rainbow-036,101,gptq-4bit,all",
        "collect",
        "figure:fig04",
    }
    assert ran(copied.build()) == {"quantize.gptq rainbow-036 seed 101 gptq-4bit"}


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def edit(path):
    """The same size."""
    data = path.read_bytes()
    path.write_bytes(data[:-7] + bytes(255 - byte for byte in data[-7:]))


def edit_at_the_same_time(path):
    times = path.stat()
    edit(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def delete(path):
    path.unlink()


DAMAGED = {
    f"{RUN}/step-*/model.safetensors": "train.train rainbow-036 seed 101",
    f"{LOSSES}/losses.safetensors": "measure.loss rainbow-036 seed 101 gptq-4bit",
    "figures/smoke/fig04.csv": "figures.layouts.over_tokens fig04",
    TABLE: "measure.collect measurements",
}


@pytest.mark.parametrize("harm", [truncate, edit, edit_at_the_same_time, delete])
def test_damage_is_noticed_and_mended(copied, harm):
    """And what depends on it does not run, since the bytes come out as they were."""
    for pattern in DAMAGED:
        *_, path = sorted(copied.folder.glob(pattern))
        harm(path)
    assert ran(copied.build()) == {*DAMAGED.values()}


def test_damage_that_leaves_no_trace_is_found_by_its_bytes(copied):
    *_, path = sorted(copied.folder.glob(f"{RUN}/step-*/model.safetensors"))
    wrong = manifest.read(copied.folder / RUN / "manifest.json")
    edit(path)
    # As if it had been so when it was published.
    with chdir(copied.folder):
        verified.note(replace(wrong, path=Path(RUN) / "manifest.json"), wrong.files)
    assert copied.stale() == set()
    copied.deep = True
    try:
        assert "train:rainbow-036,101" in copied.stale() & copied.planned()
        assert ran(copied.build()) == {"train.train rainbow-036 seed 101"}
        assert copied.stale() == set()
    finally:
        copied.deep = False


def test_an_edit_that_fails_and_is_undone_runs_nothing(copied, before):
    with copied.edited(f"{PACKAGE}/train/train.py") as (path,):
        copied.replace(path, "    trainer = ", "    assert not context\n    trainer = ")
        done = copied.snakemake()
        assert done.returncode, "the edit does not make training fail"
        assert not differing(before, state(copied))
    assert copied.stale() == set()
    assert not ran(copied.build())


def test_bytes_that_come_out_equal_stop_the_rebuild_within_the_build(copied):
    with copied.edited(f"{PACKAGE}/train/average.py") as (path,):
        path.write_text(path.read_text() + "\nassert True\n")
        stale = copied.planned()
        kinds = {job.partition(":")[0] for job in stale}
        assert kinds == {"average", "quantize", "evaluate", "collect", "figure"}
        found = ran(said := copied.build())
        averaged = [job.removeprefix("average:") for job in stale if job.startswith("average:")]
        runs = (job.split(",") for job in averaged)
        assert found == {f"train.average {run} seed {seed}" for run, seed, _ in runs}, said
        assert copied.stale() == set()
    copied.build()


def test_what_is_forced_runs_though_it_is_current(copied):
    target = f"{LOSSES}/manifest.json"
    for options in (("--force",), ("--forcerun", target)):
        done = copied.snakemake(*options, targets=(target,))
        assert done.returncode == 0, done.stderr[-2000:]
        assert ran(done.stdout + done.stderr) == {"measure.loss rainbow-036 seed 101 gptq-4bit"}
    assert not ran(copied.snakemake(targets=(target,)).stderr)
