"""Leases: on a result, and on the GPUs of a machine.

The process with the lease on a result works; others wait. The lease is a file with the owner's
process, machine and a token, which the owner touches every few seconds. After `SECONDS` without a
touch it is free, also for machines that share a file system.

The lease on a GPU is a lock that the kernel releases with its process, in a folder of the user for
all checkouts. Where a scheduler assigns devices, nothing is leased.
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from filelock import FileLock, SoftFileLease, Timeout

from ptq_dynamics.base.problem import Problem

SECONDS = 60.0  # without a sign of its owner, after which a lease is free
BEAT = 5.0  # seconds between signs
POLL = 0.2  # seconds between looks of a process that waits
# The devices that CUDA sees, by number or identity; libraries read it when they first use CUDA.
VISIBLE = "CUDA_VISIBLE_DEVICES"
# How many jobs of a build compute on one device at once; set where no scheduler gives devices.
SHARED = "PTQ_DYNAMICS_JOBS_PER_DEVICE"
# The devices that a job has, for the processes that it starts.
LEASED = "PTQ_DYNAMICS_LEASED"
DEVICE = re.compile(r"^GPU \d+:", flags=re.M)  # of `nvidia-smi -L`

_locks = dict[str, FileLock]()  # on devices, which the kernel releases with this process


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
            f"another process has taken over {self.path.parent}, or the folder was deleted, while "
            "this process was stopped; no result is lost: run the same command again"
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
        while not lock.is_locked:
            with suppress(Timeout):
                lock.acquire(timeout=BEAT)
            # Who was killed before it wrote its name leaves an empty file, which would stay.
            with suppress(OSError):
                if path.stat().st_size == 0:
                    path.unlink()
    lease = Lease(path, str(lock.token))
    try:
        yield lease
    except Exception:
        # A process that lost its lease finds nothing where it was; that is the error to report.
        lease.require()
        raise
    finally:
        lock.release()


def visible() -> list[str]:
    """The devices that CUDA would see now, found without CUDA."""
    chosen = os.environ.get(VISIBLE)
    if chosen is not None:
        return [name for name in map(str.strip, chosen.split(",")) if name not in ("", "-1")]
    try:
        command = ["nvidia-smi", "-L"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(number) for number in range(len(DEVICE.findall(listed.stdout)))]


def take_devices(count: int, say: Callable[[str], None]) -> None:
    """Have `count` devices, or all where there are fewer, as the only ones that CUDA sees, until
    this process ends; says in one line when it has to wait for other jobs.

    None are leased for a `count` of 0, without a GPU, by a process that a job with a lease has
    started, or where a scheduler gives each job its own.
    """
    if not (count and SHARED in os.environ and LEASED not in os.environ and (names := visible())):
        return
    folder = Path(tempfile.gettempdir()) / f"ptq-dynamics-devices-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    count = min(count, len(names))
    if not (found := _take(folder, names, count)):
        what = f"{count} GPUs" if count > 1 else "a GPU"
        say(f"waits for {what}; other jobs compute on {', '.join(names)}")
    while not found:
        time.sleep(POLL)
        found = _take(folder, names, count)
    _locks.update(found)
    os.environ[VISIBLE] = os.environ[LEASED] = ",".join(_locks)


def _take(folder: Path, names: list[str], count: int) -> dict[str, FileLock]:
    """A lock on so many devices, those with the fewest jobs first; none where fewer are free."""
    found = dict[str, FileLock]()
    for slot, name in product(range(int(os.environ[SHARED])), names):
        lock = FileLock(folder / f"{re.sub('[^A-Za-z0-9._-]', '_', name)}-{slot}.lock")
        if len(found) < count and name not in found:
            with suppress(Timeout):
                lock.acquire(blocking=False)
                found[name] = lock
    if len(found) < count:
        for lock in found.values():
            lock.release()
        return {}
    return {name: found[name] for name in names if name in found}
