"""What counts executions in tests of kills sees what is wrong, when it is provoked."""

import shutil
import signal
import sys
from subprocess import DEVNULL, Popen

import pytest
from executions import Journal
from project import Project, run_job
from support import job_file, specification, wait_until


@pytest.fixture
def project(tmp_path):
    return Project.copy(tmp_path / "project")


@pytest.fixture
def journal(project, tmp_path):
    return Journal.of(project.folder, tmp_path / "executions")


def begun(project, journal, job):
    """A process that has begun to make a result."""
    process = Popen(
        [sys.executable, "-m", "ptq_dynamics.engine.run", "--job", job_file(project.folder, job)],
        cwd=project.folder,
        env=project.variables(),
        stdout=DEVNULL,
        stderr=DEVNULL,
    )
    wait_until(lambda: process.poll() is not None or journal.count().total, "nobody begins")
    return process


def test_executions_at_once_of_whole_and_of_lost_results_are_seen(project, journal):
    corpus = project.plan.corpora.corpus("main")
    job, name = specification(corpus), corpus.manifest
    first = begun(project, journal, job)
    try:
        first.send_signal(signal.SIGSTOP)
        assert journal.count().wrong == {} and first.poll() is None
        # As if it had not been heard of for long.
        (project.folder / corpus.paths.lease).unlink()
        assert run_job(project, project.folder, job).returncode == 0
        assert journal.count().wrong == {"together": [name]}
    finally:
        first.kill()
        first.wait()
    count = journal.count()
    assert (count.total, count.cut, dict(count.done)) == (2, 1, {name: 1})

    assert run_job(project, project.folder, job).returncode == 0
    assert journal.count().wrong == {"together": [name], "needless": [name]}

    (project.folder / name).unlink()
    assert run_job(project, project.folder, job).returncode == 0
    wrong = {"together": [name], "needless": [name], "lost": [name]}
    assert journal.count().wrong == wrong

    # What the test itself removes is not lost.
    journal.removed()
    shutil.rmtree(project.folder / corpus.folder)
    assert run_job(project, project.folder, job).returncode == 0
    assert journal.count().wrong == wrong and journal.count().done[name] == 4


def test_an_execution_after_one_that_was_killed_is_as_it_should_be(project, journal):
    corpus = project.plan.corpora.corpus("main")
    job = specification(corpus)
    first = begun(project, journal, job)
    first.kill()
    assert first.wait() != 0
    assert run_job(project, project.folder, job).returncode == 0
    count = journal.count()
    assert (count.total, count.cut, count.wrong) == (2, 1, {})
