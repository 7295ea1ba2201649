"""Records say what is up to date: not Snakemake's notes, nor times of files; and a failing build
loses nothing."""

import os
import shutil
from contextlib import chdir

import pytest
from project import Project
from ptq_dynamics.provenance.archive import Archive
from support import artifacts, differing

PACKAGE = "workflow/ptq_dynamics"
FIGURE = "figures/smoke/fig04.csv"
# Of a job that runs; one that finds its result current says nothing.
DONE = ": done in "


@pytest.fixture(scope="module")
def copied(built, tmp_path_factory):
    """A fresh checkout, into which the results of another were copied; without their times."""
    project = Project.copy(tmp_path_factory.mktemp("records") / "project", figures=built.figures)
    for place in ("results", "figures"):
        ignored = shutil.ignore_patterns(".*", "*spec.json")
        source, target = built.folder / place, project.folder / place
        shutil.copytree(source, target, ignore=ignored, copy_function=shutil.copyfile)
    return project


@pytest.fixture(autouse=True)
def before(copied):
    """All artifacts as they are and, but for a test that says otherwise, have to be in the end."""
    found = state(copied)
    yield found
    assert not differing(found, state(copied))


def state(project):
    return {
        f"{place}/{name}": data
        for place in ("results", "figures")
        for name, data in artifacts(project.folder / place).items()
        if not name.endswith("spec.json")
    }


def ran(said):
    """Stages and names of the jobs that did something."""
    return {line.partition(DONE)[0] for line in said.splitlines() if DONE in line}


def made(project, room):
    """The results of a room's stages, by the words of their jobs' lines."""
    with chdir(project.folder):
        found = [each for each in Archive.of_scale("smoke").every if each.stage.startswith(room)]
    return {f"{each.stage} {each.record.job['name']}": each for each in found}


def test_copied_results_are_up_to_date_without_snakemakes_notes(copied):
    assert not ran(copied.build())
    shutil.rmtree(copied.folder / ".snakemake")
    assert not ran(copied.build())


def edit_at_the_same_time(path):
    """The same size, and the same times."""
    times, data = path.stat(), path.read_bytes()
    path.write_bytes(data[:-7] + bytes(255 - byte for byte in data[-7:]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_damage_is_noticed_and_mended(copied):
    """And what depends on it does not run, since the bytes come out as they were."""
    runs = made(copied, "train.train").items()
    name, run = min(runs, key=lambda each: each[1].record.seconds)
    weights = next(each for each in run.record.files if each.endswith(".safetensors"))
    edit_at_the_same_time(copied.folder / run.record.job["folder"] / weights)
    (copied.folder / FIGURE).unlink()
    copied.deep = True
    try:
        assert ran(copied.build()) == {name, "figures.draw fig04"}
    finally:
        copied.deep = False


def test_an_edit_that_fails_and_is_undone_runs_nothing(copied, before):
    with copied.edited(f"{PACKAGE}/train/train.py") as (path,):
        copied.replace(path, "    trainer = ", "    assert not context\n    trainer = ")
        done = copied.snakemake()
        assert done.returncode, "the edit does not make training fail"
        changed = differing(before, state(copied))
        assert not [name for name in changed if not name.endswith("manifest.json")]
    assert not ran(copied.build())


def test_bytes_that_come_out_equal_stop_the_rebuild_within_the_build(copied):
    with copied.edited(f"{PACKAGE}/trajectories/average.py") as (path,):
        copied.replace(path, "def run(", "assert True\n\n\ndef run(")
        assert ran(copied.build()) == {*made(copied, "trajectories.average")}
    copied.build()
