"""Leases on results and on the GPUs of a machine: locks that the kernel releases when their process
ends. On a file system without such locks, a file that is there stands for a lock."""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path

from filelock import FileLock, Timeout

from ptq_dynamics.base.problem import Problem

POLL = 0.2  # seconds between the attempts of a process that waits for a device
# The devices that CUDA sees, by number or identity; libraries read it when they first use CUDA.
VISIBLE = "CUDA_VISIBLE_DEVICES"
SHARED = "PTQ_DYNAMICS_JOBS_PER_DEVICE"  # set where no scheduler assigns devices
LEASED = "PTQ_DYNAMICS_LEASED"  # the devices of a job, for the processes that it starts

_locks = list[FileLock]()  # on devices, kept until this process ends


@contextmanager
def held(path: Path, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Hold the lease `path`; yield a function that raises `Problem` if the folder was deleted. If
    another process has the lease, print a line and wait."""
    lock = FileLock(path)
    written = path.parent / path.name[1:].removesuffix("lease").removesuffix(".")
    deleted = f"{written} was deleted while this process wrote to it, or waited to"
    deleted += "; no result is lost: run the same command again"
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            say(f"waits for the process that writes to {written}")
            lock.acquire()
        own = path.stat().st_ino
    except FileNotFoundError:
        raise Problem(deleted) from None

    def require() -> None:
        with suppress(OSError):
            if path.stat().st_ino == own:
                return
        raise Problem(deleted)

    try:
        yield require
    except Exception:
        require()  # all other errors follow from it
        raise
    finally:
        with suppress(OSError):
            if path.stat().st_ino == own:
                path.unlink()  # a process that waits creates it again
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
