"""Leases on the GPUs of a machine, so that jobs that compute at once compute on different ones.

A lease is a lock on a file that the kernel gives back with the process that has it. The files lie
in a folder of the user: all checkouts on the machine share them. Where a scheduler gives devices to
each job, nothing is leased. No result depends on which device it was computed on.
"""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from filelock import FileLock, Timeout

# The devices that CUDA sees, by number or identity; libraries read it when they first use CUDA.
VISIBLE = "CUDA_VISIBLE_DEVICES"
# How many jobs of a build compute on one device at once; set where no scheduler gives devices.
SHARED = "PTQ_DYNAMICS_JOBS_PER_DEVICE"
# The devices that a job has, for the processes that it starts.
LEASED = "PTQ_DYNAMICS_LEASED"
POLL = 0.2  # seconds between looks
DEVICE = re.compile(r"^GPU \d+:", flags=re.M)  # of `nvidia-smi -L`


def visible() -> list[str]:
    """The devices that CUDA would see now, found without CUDA."""
    chosen = os.environ.get(VISIBLE)
    if chosen is not None:
        names = [name.strip() for name in chosen.split(",")]
        # CUDA ignores what follows a number that is none.
        return list(dict.fromkeys(takewhile(lambda name: name not in ("", "-1"), names)))
    try:
        command = ["nvidia-smi", "-L"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(number) for number in range(len(DEVICE.findall(listed.stdout)))]


@contextmanager
def leased(count: int, say: Callable[[str], None]) -> Iterator[list[str]]:
    """Have `count` devices, or all where there are fewer, as the only ones that CUDA sees; says in
    one line when it has to wait for other jobs.

    None are leased for a `count` of 0, without a GPU, by a process that a job with a lease has
    started, or where a scheduler gives each job its own.
    """
    names = visible() if count and SHARED in os.environ and LEASED not in os.environ else []
    if not names:
        yield []
        return
    locks = _wait(names, min(count, len(names)), say)
    before, found = os.environ.get(VISIBLE), ",".join(locks)
    os.environ |= {VISIBLE: found, LEASED: found}
    try:
        yield list(locks)
    finally:
        for lock in locks.values():
            lock.release()
        del os.environ[LEASED], os.environ[VISIBLE]
        if before is not None:
            os.environ[VISIBLE] = before


def _wait(names: list[str], count: int, say: Callable[[str], None]) -> dict[str, FileLock]:
    """A lock on so many devices, as soon as they are free."""
    folder, told = Path(tempfile.gettempdir()) / f"ptq-dynamics-devices-{os.getuid()}", False
    folder.mkdir(mode=0o700, exist_ok=True)
    while not (found := _take(folder, names, count)):
        if not told:
            what = f"{count} GPUs" if count > 1 else "a GPU"
            say(f"waits for {what}; other jobs compute on {', '.join(names)}")
            told = True
        time.sleep(POLL)
    return found


def _take(folder: Path, names: list[str], count: int) -> dict[str, FileLock]:
    """A lock on so many devices, those with the fewest jobs first; none where fewer are free."""
    found = dict[str, FileLock]()
    for slot in range(int(os.environ[SHARED])):
        for name in names:
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
