"""Child processes of a job, which end with it, even if the job is killed.

This file is also the program between the two, `python subprocesses.py PIPE COMMAND...`. It leads a
new session, runs the command, and kills the session when the other end of the pipe closes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, PIPE, CompletedProcess


def run(
    command: Sequence[str], environment: Mapping[str, str], *, is_heard: bool = False
) -> CompletedProcess[str]:
    """Run a command and return its output, without stderr if that `is_heard` on the terminal."""
    # The kernel closes the writing end with this process.
    reader, writer = os.pipe()
    try:
        return subprocess.run(
            [sys.executable, "-I", "-S", __file__, str(reader), *command],
            env=environment,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=None if is_heard else PIPE,
            encoding="utf-8",
            errors="replace",
            pass_fds=[reader],
            start_new_session=True,
        )
    finally:
        os.close(reader)
        os.close(writer)


def _end_with(pipe: int) -> None:
    os.read(pipe, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    child = subprocess.Popen(sys.argv[2:], stdin=DEVNULL)
    threading.Thread(target=_end_with, args=[int(sys.argv[1])], daemon=True).start()
    ended = child.wait()
    sys.exit(ended if ended >= 0 else 128 - ended)
