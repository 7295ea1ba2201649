"""The checkout whose code runs: where it lies, and that it is the one that is meant."""

import os
import sys
from pathlib import Path

from ptq_dynamics.base.problem import Problem

PACKAGE = "ptq_dynamics"
# The folder workflow, which PYTHONPATH names where it is not installed, and the one it lies in.
SOURCES = Path(__file__).resolve().parents[2]
ROOT = SOURCES.parent


def check(folder: Path) -> None:
    """Raise `Problem` when `folder` is a checkout, but not the one whose code runs.

    Checkouts that share an environment otherwise run the one that was installed last.
    """
    own = folder / "workflow" / PACKAGE
    if own.is_dir() and not own.samefile(SOURCES / PACKAGE):
        raise Problem(
            f"the code that runs is that of another checkout, {ROOT}; set PYTHONPATH=workflow, or "
            "install this one into the environment: pip install --no-deps -e ."
        )


def environment() -> dict[str, str]:
    """Variables with which `python` is this one, and runs this code."""
    programs = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    modules = filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")])
    return {"PYTHONPATH": os.pathsep.join(modules), "PATH": os.pathsep.join(programs)}
