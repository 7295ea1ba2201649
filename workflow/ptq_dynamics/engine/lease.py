"""The lease on a result: of several processes of one job, one works and the others wait.

It is a file with the owner's process, machine and a token, which the owner touches every few
seconds. A lease whose owner has not touched it for `SECONDS` goes to a process that waits for it,
so it also serves machines that share a file system.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import SoftFileLease, Timeout

from ptq_dynamics.base.problem import Problem

SECONDS = 60.0  # without a sign of its owner, after which a lease is free
BEAT = 5.0  # seconds between signs
POLL = 0.2  # seconds between looks of a process that waits


@dataclass
class Lease:
    """A lease that this process has; `waited` when another process had it before."""

    path: Path
    token: str
    waited: bool

    def require(self) -> None:
        """Raise `Problem` unless the lease is still that of this process."""
        owned = False
        with suppress(OSError):
            owned = self.token in self.path.read_text(encoding="utf-8")
        if not owned:
            raise Problem(
                f"another process has taken over {self.path.parent}, or it was deleted, while this "
                "one was stopped; nothing is lost: run the same command again"
            )


@contextmanager
def held(path: Path, say: Callable[[str], None], lost: Callable[[], None]) -> Iterator[Lease]:
    """Hold the lease `path`; says in one line which process it waits for, and calls `lost`, in
    another thread, should the lease be lost."""
    lease = SoftFileLease(
        path,
        lease_duration=SECONDS,
        heartbeat_interval=BEAT,
        on_compromise=lambda _: lost(),
        poll_interval=POLL,
    )
    waited = False
    try:
        lease.acquire(timeout=0)
    except Timeout:
        waited = True
        say(f"waits for {_owner(path)}, which does the same job")
        lease.acquire()
    try:
        yield Lease(path, str(lease.token), waited)
    except Exception:
        # A process that lost its lease finds nothing where it was; that is the error to report.
        with suppress(OSError):
            Lease(path, str(lease.token), waited).require()
        raise
    finally:
        lease.release()


def _owner(path: Path) -> str:
    """The process that has a lease, in words."""
    lines: list[str] = []
    with suppress(OSError):
        lines = path.read_text(encoding="utf-8").splitlines()
    known = dict(line.split("=", 1) for line in lines if "=" in line)
    return f"process {known.get('pid', '?')} on {known.get('host', '?')}"
