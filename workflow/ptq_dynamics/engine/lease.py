"""Leases on results and on the GPUs of a machine.

The owner of a lease on a result touches the lease file every few seconds. After `SECONDS` without a
touch, another process may take the lease, also on another machine that shares the file system. A
lease on a GPU is a lock in a temporary folder, which the kernel releases when the process ends."""

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

SECONDS = 60.0  # without a touch, after which a lease is free
BEAT = 5.0  # seconds between touches
POLL = 0.2  # seconds between the attempts of a waiting process
# The devices that CUDA sees, by number or identity; libraries read it when they first use CUDA.
VISIBLE = "CUDA_VISIBLE_DEVICES"
SHARED = "PTQ_DYNAMICS_JOBS_PER_DEVICE"  # set where no scheduler assigns devices
LEASED = "PTQ_DYNAMICS_LEASED"  # the devices of a job, for the processes that it starts

_locks = list[FileLock]()  # on devices, kept until this process ends


@dataclass(frozen=True)
class Lease:
    """A lease of this process."""

    path: Path
    token: str

    def require(self) -> None:
        """Raise `Problem` if this process has lost the lease."""
        with suppress(OSError):
            if self.token in self.path.read_text(encoding="utf-8"):
                return
        raise Problem(
            f"another process has taken over {self.path.parent}, or the folder was deleted, while "
            "this process was stopped; no result is lost: run the same command again"
        )


def lease_on(path: Path, lost: Callable[[object], None] | None = None) -> SoftFileLease:
    """Return the lease `path`, for which `with` waits but briefly; then it raises `Timeout`."""
    return SoftFileLease(
        path,
        lease_duration=SECONDS,
        heartbeat_interval=BEAT,
        on_compromise=lost,
        poll_interval=POLL,
        timeout=POLL,
    )


@contextmanager
def held(path: Path, say: Callable[[str], None]) -> Iterator[Lease]:
    """Hold the lease `path`, and print a line if another process has it. A process that loses the
    lease is terminated."""
    lock = lease_on(path, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"waits for the process that {path} names, which writes the same folder")
        while not lock.is_locked:
            with suppress(Timeout):
                lock.acquire(timeout=BEAT)
            # A process that was killed early leaves an empty file, which filelock never removes.
            with suppress(OSError):
                if path.stat().st_size == 0:
                    path.unlink()
    lease = Lease(path, str(lock.token))
    try:
        yield lease
    except Exception:
        # After a loss of the lease, all other errors follow from it.
        lease.require()
        raise
    finally:
        lock.release()


def visible() -> list[str]:
    """List the devices that CUDA would see, without using CUDA."""
    if (chosen := os.environ.get(VISIBLE)) is not None:
        return [name for name in map(str.strip, chosen.split(",")) if name not in ("", "-1")]
    try:
        command = ["nvidia-smi", "-L"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return []
    return re.findall(r"^GPU (\d+):", listed.stdout, flags=re.M)


def take_devices(count: int, say: Callable[[str], None]) -> None:
    """Lease `count` devices, or all if there are fewer, until this process ends; CUDA sees no
    others. Lease none where `SHARED` is unset, or for a process that a leasing job has started."""
    if not (count and SHARED in os.environ and LEASED not in os.environ and (names := visible())):
        return
    folder = Path(tempfile.gettempdir()) / f"ptq-dynamics-devices-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    count = min(count, len(names))
    if not (locks := _take(folder, names, count)):
        what = f"{count} GPUs" if count > 1 else "a GPU"
        say(f"waits for {what}; other jobs compute on {', '.join(names)}")
    while not locks:
        time.sleep(POLL)
        locks = _take(folder, names, count)
    _locks.extend(locks.values())
    os.environ[VISIBLE] = os.environ[LEASED] = ",".join(sorted(locks, key=names.index))


def _take(folder: Path, names: list[str], count: int) -> dict[str, FileLock]:
    """Lock `count` devices, those with the fewest jobs first; none if fewer are free."""
    locks = dict[str, FileLock]()
    for slot, name in product(range(int(os.environ[SHARED])), names):
        lock = FileLock(folder / f"{re.sub('[^A-Za-z0-9._-]', '_', name)}-{slot}.lock")
        if len(locks) < count and name not in locks:
            with suppress(Timeout):
                lock.acquire(blocking=False)
                locks[name] = lock
    # A lock without a reference is released.
    return locks if len(locks) == count else {}
