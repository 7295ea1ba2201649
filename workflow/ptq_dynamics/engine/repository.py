"""The repository that holds the code, if one does, and its state."""

import contextlib
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ptq_dynamics.engine.checkout import PACKAGE, ROOT, SOURCES

CODE = (".py", ".smk", "Snakefile", ".yaml")
# What git calls the commit of a repository without any.
UNBORN = "(initial)"


@dataclass(frozen=True)
class Git:
    """The commit of the code's repository, and whether the code differs from it."""

    commit: str
    dirty: bool


def state(root: Path = ROOT) -> Git | None:
    """The commit of the code; None where no repository holds it.

    Dirty is a change of any file it holds, and code or configuration that it does not hold.
    """
    if not holds_code(root):
        return None
    options = ["--porcelain=v2", "--branch", "-z", "-uall", "--no-renames"]
    try:
        lines = _git(root, "status", *options).split("\0")
    except (OSError, subprocess.CalledProcessError):
        return None
    commit = next(line.split()[-1] for line in lines if line.startswith("# branch.oid "))
    changes = [line for line in lines if line and not line.startswith("#")]
    dirty = any(line[0] != "?" or line.endswith(CODE) for line in changes)
    return None if commit == UNBORN else Git(commit, dirty)


def refresh(root: Path = ROOT) -> None:
    """Let git see that files are as they were: of a fresh clone, it would read them all again for
    every job. Where it may not write that down, it does."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        if holds_code(root):
            _git(root, "update-index", "-q", "--refresh")


@cache
def holds_code(root: Path = ROOT) -> bool:
    """Whether a repository holds the code, which may lie in a folder that another one ignores."""
    try:
        _git(root, "ls-files", "--error-unmatch", f"{SOURCES.name}/{PACKAGE}/__init__.py")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
