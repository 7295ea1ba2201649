"""Processes that a job starts, which end with it: also when it is killed, on Linux and macOS."""

import multiprocessing
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from typing import IO

GUARD = Path(__file__).with_name("guard.py")


def start(
    command: Sequence[str],
    *,
    stdout: int | IO[str],
    stderr: int | IO[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Popen[str]:
    """Start a command in a session of its own; it and all that it starts end with this process.

    A guard stands in between, whose input this process holds open: the kernel closes it with this
    process, and the guard then ends the session.
    """
    return Popen(
        [sys.executable, "-I", "-S", str(GUARD), *command],
        cwd=folder,
        env=environment,
        stdin=PIPE,
        stdout=stdout,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def run(command: Sequence[str], environment: Mapping[str, str]) -> CompletedProcess[str]:
    """Run a command to its end, as `start` does, and keep what it prints."""
    process = start(command, stdout=PIPE, stderr=PIPE, environment=environment)
    try:
        # Not communicate, which closes the input first.
        parts: dict[str, str] = {}
        readers = [
            threading.Thread(target=_read, args=(stream, name, parts))
            for name, stream in (("stdout", process.stdout), ("stderr", process.stderr))
        ]
        for reader in readers:
            reader.daemon = True
            reader.start()
        for reader in readers:
            reader.join()
        status = process.wait()
    finally:
        end(process)
    return CompletedProcess(list(command), status, parts["stdout"], parts["stderr"])


def end(process: Popen[str]) -> None:
    """End what `start` started, if it has not ended."""
    if process.stdin is not None:
        process.stdin.close()
    process.wait()


def _read(stream: IO[str] | None, name: str, parts: dict[str, str]) -> None:
    parts[name] = stream.read() if stream is not None else ""


def end_with_parent() -> None:
    """Have a worker process of a pool end as soon as the process that started it has."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
