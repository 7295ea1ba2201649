"""Processes that a job starts, which end with it: also when it is killed, on Linux and macOS.

This file is also the program that stands in between, `python processes.py PIPE COMMAND...`, as the
first of a session: it runs the command, and ends all of the session when who waits for it is gone.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess


def run(
    command: Sequence[str], environment: Mapping[str, str], *, is_heard: bool = False
) -> CompletedProcess[str]:
    """Run a command to its end, in a session that ends with this process. What it prints is kept;
    if it `is_heard`, its errors and progress go where those of this process go."""
    # The kernel closes the end that stays here with this process.
    reader, writer = os.pipe()
    try:
        return subprocess.run(
            [sys.executable, "-I", "-S", str(Path(__file__)), str(reader), *command],
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
