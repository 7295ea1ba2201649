"""The lease on a result: of several processes of one job, one works and the others wait.

It is a file with the owner's process, machine and a token, which the owner touches every few
seconds. A lease whose owner has not touched it for `SECONDS` goes to a process that waits for it,
so it also serves machines that share a file system.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import SoftFileLease, Timeout

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import signals

SECONDS = 60.0  # without a sign of its owner, after which a lease is free
BEAT = 5.0  # seconds between signs
POLL = 0.2  # seconds between looks of a process that waits


@dataclass(frozen=True)
class Lease:
    """A lease that this process has."""

    path: Path
    token: str

    def require(self) -> None:
        """Raise `Problem` unless the lease is still that of this process."""
        with suppress(OSError):
            if self.token in self.path.read_text(encoding="utf-8"):
                return
        raise Problem(
            f"another process has taken over {self.path.parent}, or it was deleted, while this "
            "one was stopped; nothing is lost: run the same command again"
        )


@contextmanager
def held(path: Path, say: Callable[[str], None]) -> Iterator[Lease]:
    """Hold the lease `path`; says in one line which process it waits for. Should the lease be lost,
    the process is ended as by a signal."""
    lock = SoftFileLease(
        path,
        lease_duration=SECONDS,
        heartbeat_interval=BEAT,
        on_compromise=lambda _: os.kill(os.getpid(), signal.SIGTERM),
        poll_interval=POLL,
    )
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"waits for the process that {path} names, which does the same job")
        lock.acquire()
    lease = Lease(path, str(lock.token))
    signals.at_last.append(lock.release)
    try:
        yield lease
    except Exception:
        # A process that lost its lease finds nothing where it was; that is the error to report.
        lease.require()
        raise
    finally:
        signals.at_last.remove(lock.release)
        lock.release()
