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
    """Raise `Problem` when `folder` is a checkout, but not the one whose code runs, or where it
    cannot lie.

    Checkouts that share an environment otherwise run the one that was installed last.
    """
    if not {*"{}"}.isdisjoint(str(ROOT)):
        raise Problem(
            f"the path of this checkout, {ROOT}, has braces, which Snakemake takes for wildcards; "
            "move it to a path without"
        )
    own = folder / "workflow" / PACKAGE
    if own.is_dir() and not own.samefile(SOURCES / PACKAGE):
        raise Problem(
            f"the code that runs is that of another checkout, {ROOT}; set PYTHONPATH=workflow, or "
            "install this one into the environment: pip install --no-deps -e ."
        )


def environment() -> dict[str, str]:
    """Variables with which `python` is this one, and runs this code."""
    first = {"PYTHONPATH": (SOURCES, ""), "PATH": (Path(sys.executable).parent, os.defpath)}
    variables = dict[str, str]()
    for name, (folder, default) in first.items():
        others = os.environ.get(name, default).split(os.pathsep)
        variables[name] = os.pathsep.join(dict.fromkeys([str(folder), *filter(None, others)]))
    return variables
