"""Processes that a job starts, which end with it: also when it is killed, on Linux and macOS.

This file is also the program that stands in between, `python processes.py COMMAND...`, as the first
of a session: it runs the command, and ends all of the session when who waits for it is gone.
"""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen
from typing import IO


def start(
    command: Sequence[str],
    *,
    stdout: int | IO[str],
    stderr: int | IO[str],
    environment: Mapping[str, str] | None = None,
) -> Popen[str]:
    """Start a command in a session of its own; it and all that it starts end with this process,
    which holds its input open, or when that is closed."""
    return Popen(
        [sys.executable, "-I", "-S", str(Path(__file__)), *command],
        env=environment,
        stdin=PIPE,
        stdout=stdout,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def run(command: Sequence[str], environment: Mapping[str, str]) -> CompletedProcess[str]:
    """Run a command to its end, as `start` does, and keep what it prints."""
    with _file() as out, _file() as err:
        with start(command, stdout=out, stderr=err, environment=environment) as process:
            # Not communicate, which closes the input first.
            status = process.wait()
        out.seek(0)
        err.seek(0)
        return CompletedProcess(list(command), status, out.read(), err.read())


def _file() -> IO[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")


def _end_with_input() -> None:
    # By its descriptor: at the end of Python, nobody may hold the lock of sys.stdin.
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    child = Popen(sys.argv[1:], stdin=DEVNULL)
    threading.Thread(target=_end_with_input, daemon=True).start()
    ended = child.wait()
    sys.exit(ended if ended >= 0 else 128 - ended)
