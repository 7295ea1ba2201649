"""Install the locked environment of a tool that cannot share the main one."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptq_dynamics.jobs import processes
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.jobs.manifest import Manifest
from ptq_dynamics.problem import Problem
from ptq_dynamics.quantize import lock_file
from ptq_dynamics.quantize.settings import EnvironmentSettings

# Hidden, so that its tens of thousands of files are no part of the manifest.
FOLDER = ".venv"
PACKAGES = "packages.txt"
REPOSITORY = Path(__file__).resolve().parents[3]


def run(context: Context[EnvironmentSettings]) -> Mapping[str, Any]:
    """Make a virtual environment from the lock file, beside the manifest; the result's file lists
    what is in it."""
    lock = REPOSITORY / context.settings.lock
    # A virtual environment cannot be moved, so it is made in its place.
    folder = Path(context.settings.folder) / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    context.progress.say(f"installing {lock.name} (minutes, once)")
    python = folder / "bin" / "python"
    options = lock_file.options(lock.read_text(encoding="utf-8"))
    _call([sys.executable, "-m", "venv", str(folder)], options, context)
    _call(
        [str(python), "-m", "pip", "install", "-q", "--no-compile", "-r", str(lock)],
        options,
        context,
    )
    packages = _call([str(python), "-m", "pip", "freeze"], options, context)
    (context.out / PACKAGES).write_text(packages)
    return {"lock": lock.name}


def python(environment: Manifest) -> Path:
    """The interpreter of an environment that this stage made; `Problem` when it is gone."""
    path = environment.folder / FOLDER / "bin" / "python"
    if not path.exists():
        raise Problem(f"{path} is missing; remove {environment.path} and build again")
    return path


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
