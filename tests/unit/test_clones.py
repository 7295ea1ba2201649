"""What a checkout has and git tells of it: released files, another owner, or no commit."""

import os
import re
import shutil
from contextlib import chdir
from subprocess import run

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli.outcomes import released_scales
from ptq_dynamics.engine import machine
from ptq_dynamics.provenance import released
from support import ROOT, git

PACKAGE = "workflow/ptq_dynamics/__init__.py"


@pytest.fixture
def clone(tmp_path):
    """A repository with three commits."""
    folder = tmp_path / "a clone"
    (folder / PACKAGE).parent.mkdir(parents=True)
    git(folder, "init", "-q")
    for text in ("one", "two", "three"):
        (folder / PACKAGE).write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", text)
    return folder


def test_released_files_have_the_bytes_of_their_release():
    with chdir(ROOT):
        scales = released_scales()
        assert scales and [line for scale in scales for line in released.wrong(scale)] == []


def test_the_commit_of_a_clone_that_another_user_owns_is_read(clone):
    if os.getuid():
        pytest.skip("only root can give files away")
    head = git(clone, "rev-parse", "HEAD")
    run(["chown", "-R", "12345", str(clone)], check=True)
    # Users and containers have no exceptions of their own.
    plain = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = run(["git", "status"], cwd=clone, env=os.environ | plain, capture_output=True, text=True)
    assert "safe.directory" in done.stderr
    assert machine.read_commit(root=clone).commit == head
    assert len(machine.history(clone)[0]) == 6


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda at: shutil.rmtree(at / ".git"), "git says: fatal: not a git repository"),
        (lambda at: (at / ".git/HEAD").write_text("x"), "git says: fatal: not a git repository"),
        # An archive that was unpacked inside another repository.
        (lambda at: git(at, "rm", "-q", "--cached", PACKAGE), "did not match any file"),
        (lambda at: os.environ.update(PATH="/nowhere"), "git cannot be run: No such file"),
    ],
)
def test_why_no_commit_is_known_is_one_line(clone, monkeypatch, harm, words):
    monkeypatch.setenv("PATH", os.environ["PATH"])
    harm(clone)
    with pytest.raises(Problem, match=re.escape(words)) as caught:
        machine.read_commit(root=clone)
    assert "\n" not in str(caught.value)
    assert machine.commit.__wrapped__(root=clone) is None
    assert machine.history(clone) == (set(), str(caught.value))
