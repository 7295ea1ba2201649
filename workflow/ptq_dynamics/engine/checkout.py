"""The checkout whose code runs."""

import os
import sys
from pathlib import Path

from ptq_dynamics.base.problem import Problem

PACKAGE = "ptq_dynamics"
SOURCES = Path(__file__).resolve().parents[2]  # the folder `workflow`
ROOT = SOURCES.parent


def require_own(folder: Path) -> None:
    """Raise `Problem` if `folder` is another checkout than the one whose code runs; in a shared
    environment, that is the checkout that was installed first."""
    own = folder / "workflow" / PACKAGE
    if own.is_dir() and not own.samefile(SOURCES / PACKAGE):
        mend = "set PYTHONPATH=workflow, or give this one an environment of its own"
        raise Problem(f"the code that runs is that of another checkout, {ROOT}; {mend}")


def environment() -> dict[str, str]:
    """Return variables with which `python` is this Python and runs this code."""
    programs = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    modules = filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")])
    return {"PYTHONPATH": os.pathsep.join(modules), "PATH": os.pathsep.join(programs)}
