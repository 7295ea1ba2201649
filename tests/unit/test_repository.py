"""The repository that holds the code: its commit, and what counts as a change of it."""

import os
import shutil
import subprocess

import pytest
from ptq_dynamics.engine import repository
from ptq_dynamics.engine.checkout import ROOT


@pytest.fixture
def folder(tmp_path):
    """A repository with the package in it, and a commit."""
    folder = tmp_path / "checkout"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "workflow", folder / "workflow", ignore=ignore)
    (folder / ".gitignore").write_text("/results/\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def git(folder, *arguments):
    person = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", *person, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_repository_is_that_of_the_code(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert repository.state(folder) == repository.Git(git(folder, "rev-parse", "HEAD"), False)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    git(elsewhere, "init", "-q")
    assert repository.state(elsewhere) is None, "it does not hold the code"
    assert repository.state(tmp_path) is None


def test_a_repository_without_a_commit_is_none(folder, monkeypatch):
    monkeypatch.setattr(repository, "holds_code", repository.holds_code.__wrapped__)
    git(folder, "update-ref", "-d", "HEAD")
    assert git(folder, "ls-files"), "the code is in the index"
    assert repository.state(folder) is None


@pytest.mark.parametrize(
    ("name", "dirty"),
    [
        ("workflow/ptq_dynamics/base/problem.py", True),
        ("workflow/ptq_dynamics/new.py", True),
        ("workflow/rules/new.smk", True),
        ("config/scales/new.yaml", True),
        ("Snakefile", True),
        ("notes.txt", False),
        ("results/new.py", False),
    ],
)
def test_code_that_differs_from_the_commit_is_dirty(folder, name, dirty):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("# more\n")
    found = repository.state(folder)
    assert found is not None and found.dirty is dirty
    os.unlink(path)
