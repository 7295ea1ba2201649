"""SIGINT and SIGTERM end a process at once and in one line, as cheaply as a kill. SIGUSR1 calls a
job back before its time limit: a job that can continue later saves its state and ends with the
status `AGAIN`; any other goes on."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

INTERRUPTED = "interrupted; run the same command again to go on"
GRACE = 4.0  # seconds in which Python has to answer a signal
SIGNALS = (signal.SIGINT, signal.SIGTERM)
CALL = signal.SIGUSR1
AGAIN = os.EX_TEMPFAIL
KILLED = 128 + signal.SIGKILL

_called = threading.Event()
_late: list[Callable[[], object]] | None = None  # within `deferred`: what signals have asked for
# What a process that a signal ends does at last.
at_last = list[Callable[[], object]]()


class CalledBack(BaseException):
    """The job was called back, and has saved its state."""


def called_back() -> bool:
    """Whether the job should save its state now and raise `CalledBack`."""
    return _called.is_set()


def leave(line: str) -> NoReturn:
    """End this process with one line, or with none."""
    with suppress(OSError):
        # By its descriptor: whom the signal interrupts may hold the lock of sys.stderr.
        os.write(2, f"{line}\n".encode() if line else b"")
    for clean in at_last:
        clean()
    os._exit(1)


def leave_at_once(line: str) -> None:
    """From now on, until something else is said, a signal ends the process with one line."""

    def end(*_: object) -> None:
        if _late is not None:
            _late.append(end)
            return
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        leave(line)

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


@contextmanager
def deferred() -> Iterator[None]:
    """Within it a signal does not end the process: its end does."""
    global _late
    _late = came = list[Callable[[], object]]()
    try:
        yield
    finally:
        _late = None
        for end in came:
            end()


def begin_job(line: str) -> None:
    """From now on this process is a job: it can be called back, and a signal ends it with one line
    within seconds also where Python does not get to run."""
    leave_at_once(line)
    signal.signal(CALL, lambda *_: _called.set())
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # Written to as a signal comes in.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader, line), daemon=True).start()


def _watch(reader: int, line: str) -> None:
    while os.read(reader, 1)[0] not in SIGNALS:
        pass
    time.sleep(GRACE)
    leave(line)


def hand_over() -> None:
    """From now on a signal of this process, Snakemake, ends its jobs too, wherever it came from."""
    for number in SIGNALS:
        signal.signal(number, _end_jobs)


def _end_jobs(number: int, frame: FrameType | None) -> None:
    import logging

    import psutil

    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    # Each job says in one line that it ends; Snakemake would add a paragraph.
    logging.disable()
    os.write(2, b"the build is interrupted; run the same command again to go on\n")
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "ptq_dynamics.engine.run" in process.cmdline():
                process.terminate()
    raise KeyboardInterrupt
