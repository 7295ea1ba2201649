"""Run the job of a record once more, by itself, with as many threads and processes as then.

So the dropped files of a result are made again when a job needs them. What comes out must be what
the manifest says, which stays as it is, so that nothing else is built again. Audits only compare.
"""

import os
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Literal

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import processes, record
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import RECORD, beside


def restore(result: Manifest) -> None:
    """Have the dropped files of a result made, unless another process has done so meanwhile.

    Raises `Problem` when they cannot be made, or come out different.
    """
    path = beside(result.path, RECORD)
    if reason := again(path, "restore"):
        raise Problem(
            f"the dropped files of {result.folder} could not be made again: {reason}; to make "
            f"all of it anew, rm {path} and build again"
        )


def again(path: Path, purpose: Literal["restore", "compare"]) -> str | None:
    """Run the job of a record; why that failed, if it did."""
    made = record.read(path)
    names = {"OMP_NUM_THREADS", *(name for name in os.environ if name.endswith("_NUM_THREADS"))}
    environment = {**os.environ, **dict.fromkeys(names, str(made.threads))}
    environment["PTQ_DYNAMICS_PROCESSES"] = str(made.processes)
    command = [sys.executable, "-m", "ptq_dynamics.engine.run", str(path), f"--{purpose}"]
    # Unless this job has a lease already, as it may compute on a device.
    command += ["--devices", "1"]
    process = processes.start(command, stdout=DEVNULL, stderr=PIPE, environment=environment)
    reason = "its process was ended"
    try:
        for line in process.stderr or ():
            if line.startswith("error: "):
                reason = line.removeprefix("error: ").rstrip()
            else:
                print(line, end="", file=sys.stderr, flush=True)
        process.wait()
    finally:
        processes.end(process)
    return reason if process.returncode else None
