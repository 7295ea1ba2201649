"""Leases on the GPUs of a machine, so that jobs that compute at once compute on different ones.

A lease is a lock on a file that the kernel gives back with the process that has it, whatever ends
it. The files lie on the machine's own disk, in a folder of the user: all checkouts share them.
Where a scheduler gives devices to each job, nothing is leased. It stands outside of specifications:
no result depends on which device it was computed on.
"""

import os
import re
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from filelock import FileLock, Timeout

from ptq_dynamics.base.problem import Problem

# The devices that CUDA sees, by number or identity: those of a user's choice, and from then on of a
# job's lease. Libraries read it when they first use CUDA.
VISIBLE = "CUDA_VISIBLE_DEVICES"
# What schedulers call the job that they run.
SCHEDULED = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
# The scheduler's job that a build runs in, whose devices its own jobs share.
ALLOCATION = "PTQ_DYNAMICS_ALLOCATION"
# How many jobs of a build compute on one device at once.
SHARED = "PTQ_DYNAMICS_JOBS_PER_DEVICE"
# The devices that a job has, for what it starts.
LEASED = "PTQ_DYNAMICS_LEASED"
POLL = 0.2  # seconds between looks of who waits
PATIENCE = 1.0  # seconds of waiting without a word
DEVICE = re.compile(r"^GPU \d+:", flags=re.M)  # of `nvidia-smi -L`


def allocation(environment: Mapping[str, str] = os.environ) -> str:
    """The scheduler's job that this process is part of; empty where there is none."""
    found = ((name, environment.get(name)) for name in SCHEDULED)
    return next((f"{name}={value}" for name, value in found if value), "")


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
    return [str(number) for number, _ in enumerate(DEVICE.findall(listed.stdout))]


@contextmanager
def leased(count: int, say: Callable[[str], None]) -> Iterator[list[str]]:
    """Have `count` devices, or all where there are fewer, as the only ones that CUDA sees; says in
    one line when it has to wait for other jobs, of which as many share one as the build says.

    None are leased for a `count` of 0, without a GPU, by what a job with a lease has started, or
    where a scheduler gives each job its own.
    """
    own = allocation()
    is_for_itself = LEASED not in os.environ and own == os.environ.get(ALLOCATION, "")
    names = visible() if count and is_for_itself else []
    if not names:
        yield []
        return
    folder, before = _folder(), os.environ.get(VISIBLE)
    shared = int(os.environ.get(SHARED, 1))
    slots = {
        name: [_lock(folder, f"{own}-{name}-{slot}") for slot in range(shared)] for name in names
    }
    turn = _lock(folder, f"{own}-turn-{'-'.join(sorted(names))}")
    with ExitStack() as stack:
        try:
            found = _wait(turn, slots, min(count, len(names)), say, stack)
        finally:
            turn.release()
        os.environ |= {VISIBLE: ",".join(found), LEASED: ",".join(found)}
        try:
            yield found
        finally:
            del os.environ[LEASED], os.environ[VISIBLE]
            if before is not None:
                os.environ[VISIBLE] = before


def _wait(
    turn: FileLock,
    slots: Mapping[str, list[FileLock]],
    count: int,
    say: Callable[[str], None],
    stack: ExitStack,
) -> list[str]:
    """Lock a slot of so many devices until `stack` is closed, as soon as they are free.

    Of those that wait for the same devices, one at a time looks: so who wants several gets them.
    """
    begun, told = time.monotonic(), False
    while not (_locked(turn) and (found := _take(slots, count))):
        if not told and time.monotonic() - begun > PATIENCE:
            what = f"{count} GPUs" if count > 1 else "a GPU"
            say(f"waits for {what}; other jobs compute on {', '.join(slots)}")
            told = True
        time.sleep(POLL)
    for lock in found.values():
        stack.callback(lock.release)
    return list(found)


def _take(slots: Mapping[str, list[FileLock]], count: int) -> dict[str, FileLock]:
    """Lock a slot of so many devices, those with the fewest jobs first; of none, where fewer are
    free: a job that waits keeps none from others."""
    found = dict[str, FileLock]()
    for slot in zip(*slots.values(), strict=True):
        for name, lock in zip(slots, slot, strict=True):
            if len(found) < count and name not in found and _locked(lock):
                found[name] = lock
    if len(found) < count:
        for lock in found.values():
            lock.release()
        return {}
    return {name: found[name] for name in slots if name in found}


def _locked(lock: FileLock) -> bool:
    """Whether this process has the lock now, which the kernel gives back with the process."""
    if not lock.is_locked:
        with suppress(Timeout):
            lock.acquire(blocking=False)
    return lock.is_locked


def _lock(folder: Path, name: str) -> FileLock:
    return FileLock(folder / (re.sub(r"[^A-Za-z0-9._-]", "_", name.lstrip("-")) + ".lock"))


def _folder() -> Path:
    """Where the leases of this user on this machine lie."""
    folder = Path(tempfile.gettempdir()) / f"ptq-dynamics-devices-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise Problem(f"{folder} for leases on GPUs cannot be made ({error.strerror})") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise Problem(f"{folder} is not a folder of this user; remove it, or set TMPDIR")
    return folder
