"""Make the dropped files of a result again, when a job needs them.

A result whose weights were dropped is known but absent: manifest and record are there. The job in
the record runs once more, in a process of its own and with as many threads as then; what it makes
must be what the manifest says, which stays as it is, so that nothing else is built again.
"""

import os
import sys
from collections.abc import Iterable
from subprocess import DEVNULL, PIPE

from ptq_dynamics.jobs import processes, record
from ptq_dynamics.jobs.manifest import Manifest
from ptq_dynamics.jobs.paths import MANIFEST, RECORD
from ptq_dynamics.problem import Problem


def restore(result: Manifest) -> None:
    """Have the files made, unless another process has done so meanwhile.

    Raises `Problem` when they cannot be made, or come out different.
    """
    path = result.path.with_name(result.path.name.replace(MANIFEST, RECORD))
    threads = str(record.read(path).threads)
    limits = {name: threads for name in os.environ if name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-m", "ptq_dynamics.jobs.run", "--job", str(path), "--restore"]
    environment = {**os.environ, **limits, "OMP_NUM_THREADS": threads}
    # It waits for another that makes them, and finds them there.
    process = processes.start(command, stdout=DEVNULL, stderr=PIPE, environment=environment)
    try:
        reason = _relay(process.stderr or ())
        process.wait()
    finally:
        processes.end(process)
    if process.returncode:
        raise Problem(
            f"the dropped files of {result.folder} could not be made again: {reason}; to make "
            f"all of it anew, rm {result.path} and build again"
        )


def _relay(lines: Iterable[str]) -> str:
    """Pass on what a job says, but for why it fails."""
    reason = "its process was ended"
    for line in lines:
        if line.startswith("error: "):
            reason = line.removeprefix("error: ").rstrip()
        else:
            print(line, end="", file=sys.stderr, flush=True)
    return reason
