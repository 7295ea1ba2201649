"""Run the job of a record once more, by itself, with as many threads and processes as then.

So the dropped files of a result are made again when a job needs them: a result whose weights were
dropped is known but absent, with manifest and record. What comes out must be what the manifest
says, which stays as it is, so that nothing else is built again. An audit compares alone.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Literal

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import processes, record
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import RECORD, beside
from ptq_dynamics.engine.variables import PROCESSES


def restore(result: Manifest) -> None:
    """Have the files made, unless another process has done so meanwhile.

    Raises `Problem` when they cannot be made, or come out different.
    """
    path = beside(result.path, RECORD)
    if reason := again(path, "restore"):
        raise Problem(
            f"the dropped files of {result.folder} could not be made again: {reason}; to make "
            f"all of it anew, rm {result.path} and build again"
        )


def again(path: Path, purpose: Literal["restore", "compare"]) -> str | None:
    """Run the job of a record; why that failed, if it did."""
    account = record.read(path)
    threads = str(account.threads)
    limits = {name: threads for name in os.environ if name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-m", "ptq_dynamics.engine.run", "--job", str(path), f"--{purpose}"]
    # Unless this job has a lease already, as it may compute on a device.
    command += ["--devices", "1"]
    environment = {
        **os.environ,
        **limits,
        "OMP_NUM_THREADS": threads,
        PROCESSES: str(account.processes or 1),
    }
    # It waits for another that makes them, and finds them there.
    process = processes.start(command, stdout=DEVNULL, stderr=PIPE, environment=environment)
    try:
        reason = _relay(process.stderr or ())
        process.wait()
    finally:
        processes.end(process)
    return reason if process.returncode else None


def _relay(lines: Iterable[str]) -> str:
    """Pass on what a job says, but for why it fails."""
    reason = "its process was ended"
    for line in lines:
        if line.startswith("error: "):
            reason = line.removeprefix("error: ").rstrip()
        else:
            print(line, end="", file=sys.stderr, flush=True)
    return reason
