"""Install the locked environment of a tool that cannot share the main one.

A virtual environment cannot be moved, so each is made in its place beside the manifest, in a folder
named by the digest of its lock file. The manifest says which is in use; until another one is
published, that stays.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest, processes
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.quantize import lock_file
from ptq_dynamics.quantize.settings import EnvironmentSettings

# Hidden, so that its tens of thousands of files are no part of the manifest.
FOLDER = ".venv-"
DIGITS = 16  # of the lock file's digest
WHOLE = ".installed"  # in an environment that was installed to its end
PACKAGES = "packages.txt"
REPOSITORY = Path(__file__).resolve().parents[3]
INSTALL = REPOSITORY / "envs/install.py"


def run(context: Context[EnvironmentSettings]) -> Mapping[str, Any]:
    """Make a virtual environment from the lock file, beside the manifest; the result's file lists
    what is in it."""
    lock = REPOSITORY / context.settings.lock
    parent = Path(context.settings.folder)
    folder = parent / f"{FOLDER}{context.settings.digest[:DIGITS]}"
    python = _interpreter(folder)
    context.progress.say(f"installing {lock.name} (minutes, once)")
    options = lock_file.options(lock.read_text(encoding="utf-8"))
    # One that is whole may be in use by the published result: it is mended where it lies.
    if not (python.exists() and (folder / WHOLE).exists()):
        shutil.rmtree(folder, ignore_errors=True)
        _call([sys.executable, "-m", "venv", str(folder)], options, context)
    _call([str(python), str(INSTALL), str(lock)], options, context)
    packages = _call([str(python), "-m", "pip", "freeze"], options, context)
    (folder / WHOLE).touch()
    (context.out / PACKAGES).write_text(packages)
    _remove_others(parent, folder.name)
    return {"lock": lock.name, "folder": folder.name}


def python(environment: Manifest) -> Path:
    """The interpreter of an environment that this stage made; `Problem` when it is gone."""
    path = _interpreter(environment.folder / environment.facts["folder"])
    if not path.exists():
        raise Problem(f"{path} is missing; remove {environment.path} and build again")
    return path


def _interpreter(folder: Path) -> Path:
    return folder / "bin" / "python"


def _remove_others(parent: Path, made: str) -> None:
    """Remove what was installed before, but for what is published until the new one is."""
    kept = {made}
    with contextlib.suppress(Problem):
        kept.add(manifest.read(parent / manifest.MANIFEST).facts.get("folder", ""))
    for other in parent.glob(".venv*"):
        if other.name not in kept:
            shutil.rmtree(other, ignore_errors=True)


def _call(
    command: list[str], options: Mapping[str, str], context: Context[EnvironmentSettings]
) -> str:
    # A PYTHONPATH of the main environment would hide the packages of this one.
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | dict(options)
    done = processes.run(command, variables)
    if context.progress.log is not None:
        context.progress.log.write(done.stderr)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in lines if line.startswith("ERROR")), (lines or ["?"])[-1])
        raise Problem(
            f"the environment of {context.name} ({context.settings.lock}) cannot be "
            f"installed: {reason}; mend the lock file, or leave out its quantizers"
        )
    return done.stdout
