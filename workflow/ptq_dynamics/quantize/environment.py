"""Install the locked environment of a tool that cannot share the main one.

A virtual environment cannot be moved, so it stays in a folder beside the manifest."""

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest, subprocesses
from ptq_dynamics.engine.context import Context

FOLDER = ".venv-"  # hidden, so that the manifest does not list its files
COMPLETE = ".installed"  # a file in an environment whose installation succeeded
REPOSITORY = Path(__file__).resolve().parents[3]
INSTALL = REPOSITORY / "envs/install.py"


class EnvironmentSettings(Strict):
    """The lock file `lock` with its `digest`, the `folder` of the environment, and the version of
    its `python`, or None for that of the main environment."""

    lock: str
    folder: str
    digest: str
    python: str | None


def run(context: Context[EnvironmentSettings]) -> Mapping[str, object]:
    """Install the environment, and list its packages in packages.txt."""
    lock, parent = REPOSITORY / context.settings.lock, Path(context.settings.folder)
    folder = parent / f"{FOLDER}{context.settings.digest[:16]}"
    python = str(folder / "bin/python")
    context.progress.say(f"installing {lock.name} (minutes, once)")
    # The published result may use a complete environment, so pip repairs it in place.
    if not (folder / COMPLETE).exists():
        _create(folder, context)
    install = [python, "-I", str(INSTALL)]
    _call([*install, str(lock)], context)
    (folder / COMPLETE).touch()
    (context.out / "packages.txt").write_text(_call([*install, "--list", str(lock)], context))
    for other in set(parent.glob(f"{FOLDER}*")) - {folder}:
        shutil.rmtree(other, ignore_errors=True)
    return {"lock": lock.name, "folder": folder.name}


def python(environment: manifest.Manifest) -> Path:
    """Return the interpreter of an installed environment; raise `Problem` if it is missing."""
    path = environment.folder / environment.facts["folder"] / "bin/python"
    if not path.exists():
        raise Problem(f"{path} is missing; remove {environment.folder} and build again")
    return path


def digest(*locks: Path) -> str:
    """Return the hex sha256 of lock files without their comments."""
    text = "".join(lock.read_text(encoding="utf-8") for lock in locks)
    return hashlib.sha256(re.sub(r"(?m)^ *#.*\n", "", text).encode()).hexdigest()


def _create(folder: Path, context: Context[EnvironmentSettings]) -> None:
    """Create an empty environment; raise `Problem` if no program can make one with its Python."""
    version, venv = context.settings.python, ["-m", "venv", "--clear"]
    if version in (None, "{}.{}".format(*sys.version_info)):
        _call([sys.executable, *venv, str(folder)], context)
        return
    for maker in ([f"python{version}", *venv], ["uv", "venv", "--seed", f"--python={version}"]):
        if shutil.which(maker[0]):
            # A shim of pyenv fails where another version is chosen.
            with suppress(Problem):
                shutil.rmtree(folder, ignore_errors=True)
                _call([*maker, str(folder)], context)
                return
    raise Problem(
        f"the environment of {context.name} needs Python {version}, because its packages have no "
        f"wheels for other versions; install python{version} with venv, or uv, or leave out its "
        "quantizers"
    )


def _call(command: list[str], context: Context[EnvironmentSettings]) -> str:
    # Those of the main environment, such as PYTHONPATH, would hide the packages of this one.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # AutoGPTQ has wheels for Linux alone, and needs a compiler for unused kernels without this.
    variables["BUILD_CUDA_EXT"] = "0"
    done = subprocesses.run(command, variables)
    if context.progress.log is not None:
        context.progress.log.write(done.stderr)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in lines if line.startswith("ERROR")), (lines or ["?"])[-1])
        raise Problem(
            f"the environment of {context.name} ({context.settings.lock}) cannot be "
            f"installed: {reason}; correct the lock file, or leave out its quantizers"
        )
    return done.stdout
