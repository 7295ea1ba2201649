"""SIGINT and SIGTERM end a job within seconds and in one line, whatever it is doing.

Both raise KeyboardInterrupt. Libraries may swallow that, or never come back to Python; so a thread
ends the process the hard way some seconds after the signal.

SIGUSR1 calls a job back, as a scheduler does before its time is up: what can go on later saves its
state and ends with the status `AGAIN`; what cannot goes on.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = "interrupted; run the same command again to go on"
GRACE = 4.0  # seconds
SIGNALS = (signal.SIGINT, signal.SIGTERM)
CALL = signal.SIGUSR1
AGAIN = os.EX_TEMPFAIL
KILLED = 128 + signal.SIGKILL
STOPPED = 128 + signal.SIGTERM

_answered = threading.Event()
_begun = threading.Event()
_armed = threading.Event()
_called = threading.Event()
# Process that does the job for this one.
_deputy: int | None = None


class CalledBack(BaseException):
    """The job was called back, and has saved its state."""


def called_back() -> bool:
    """Whether the job should save its state now and raise `CalledBack`."""
    return _called.is_set()


def call_too(process: int) -> None:
    """Call another process back too, which does the job for this one."""
    global _deputy
    _deputy = process
    if _called.is_set():
        _call(CALL, None)


def answer() -> None:
    """From now on the process needs no line about its end: it has said one."""
    _answered.set()


def stop() -> None:
    """End the job as a signal does, from any thread; nothing outside of `ending`."""
    if _armed.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


def leave_at_once(line: str) -> None:
    """From now on, until something else is said, a signal ends the process with one line."""

    def leave(number: int, frame: FrameType | None) -> None:
        _say(line)
        os._exit(1)

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave)


def hand_over() -> None:
    """From now on a signal of this process, Snakemake, ends its jobs too, wherever it came from."""
    for number in SIGNALS:
        signal.signal(number, _end_jobs)


def _end_jobs(number: int, frame: FrameType | None) -> None:
    import psutil

    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    # Each job says in one line that it ends; Snakemake would add a paragraph.
    logging.disable()
    _say("the build is interrupted; run the same command again to go on")
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "ptq_dynamics.engine.run" in process.cmdline():
                process.terminate()
    raise KeyboardInterrupt


@contextlib.contextmanager
def ending(label: str, grace: float = GRACE) -> Iterator[None]:
    """In this block the first signal raises KeyboardInterrupt, further ones do nothing, and the
    process ends `grace` seconds later at the latest, with a line that begins with `label`."""
    global _deputy
    _answered.clear()
    _begun.clear()
    _called.clear()
    _deputy = None
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # Written to as a signal comes in, even while Python does not get to run its handler.
    earlier = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, _raise) for number in SIGNALS}
    handlers[CALL] = signal.signal(CALL, _call)
    hook, sys.unraisablehook = sys.unraisablehook, _unless_interrupted
    watch = threading.Thread(target=_watch, args=(reader, label, grace), daemon=True)
    watch.start()
    _armed.set()
    try:
        yield
    finally:
        _armed.clear()
        for number, handler in handlers.items():
            # Who was interrupted may still be in the way of another signal.
            signal.signal(number, signal.SIG_IGN if _begun.is_set() else handler)
        sys.unraisablehook = hook
        signal.set_wakeup_fd(earlier)
        os.close(writer)


def _raise(number: int, frame: FrameType | None) -> None:
    if not _begun.is_set():
        _begun.set()
        raise KeyboardInterrupt


def _call(number: int, frame: FrameType | None) -> None:
    _called.set()
    if _deputy is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(_deputy, number)


def _unless_interrupted(found: "sys.UnraisableHookArgs") -> None:
    """Of a signal that came where no exception is carried on, as while something is deleted, no
    more is said: the watch ends the process."""
    if not issubclass(found.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(found)


def _watch(reader: int, label: str, grace: float) -> None:
    while caught := os.read(reader, 1):
        if caught[0] in SIGNALS:
            time.sleep(grace)
            complain(label)
            os._exit(1)
    os.close(reader)


def complain(label: str) -> None:
    """Say that a job was interrupted, unless something has been said."""
    if not _answered.is_set():
        _answered.set()
        _say(f"error: {label}: {INTERRUPTED}")


def _say(line: str) -> None:
    # By its descriptor: whom the signal interrupts may hold the lock of sys.stderr.
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), f"{line}\n".encode())


def _leave_to_parent() -> None:
    """In a fork: signals of the terminal are for the job, which ends its workers."""
    if _armed.is_set():
        _armed.clear()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(CALL, signal.SIG_IGN)


os.register_at_fork(after_in_child=_leave_to_parent)
