"""SIGINT and SIGTERM end a process at once, as a kill does: what it was doing goes on from its last
state. SIGUSR1 calls a job back before its time limit: a job that can continue later saves its state
and ends with the status `AGAIN`; any other goes on."""

import os
import signal
import threading

CALL = signal.SIGUSR1
AGAIN = os.EX_TEMPFAIL

called_back = threading.Event()  # set once this job should save its state and raise `CalledBack`


class CalledBack(BaseException):
    """The job was called back, and has saved its state."""


def end_at_once() -> None:
    """From now on SIGINT ends this process as SIGTERM does, where Python would raise an error."""
    # Whoever starts a process in the background may have it ignored.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def begin_job() -> None:
    """From now on this process is a job, which can be called back."""
    end_at_once()
    signal.signal(CALL, lambda *_: called_back.set())
