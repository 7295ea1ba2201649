"""Make the dropped files of a result again, when a job needs them.

A result whose weights were dropped is known but absent: manifest and record are there. The job in
the record runs once more, in a process of its own; what it makes must be what the manifest says,
which stays as it is, so that nothing else is built again.
"""

import fcntl
import subprocess
import sys

from ptq_dynamics.jobs.manifest import Manifest
from ptq_dynamics.jobs.paths import MANIFEST, RECORD
from ptq_dynamics.problem import Problem


def restore(result: Manifest) -> None:
    """Have the files made, unless another process has done so meanwhile.

    Raises `Problem` when they cannot be made, or come out different.
    """
    lock = result.path.with_name(f".{result.path.name}.lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if result.state == "present":
            return
        record = result.path.with_name(result.path.name.replace(MANIFEST, RECORD))
        command = [sys.executable, "-m", "ptq_dynamics.jobs.run", "--job", str(record), "--restore"]
        if subprocess.run(command, check=False).returncode:
            raise Problem(
                f"the dropped files of {result.folder} could not be made again (the reason is "
                f"above); to make all of it anew, rm {result.path} and build again"
            )
