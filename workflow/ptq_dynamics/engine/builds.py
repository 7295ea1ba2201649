"""Builds at once in one folder: none makes what another one makes or reads.

Snakemake's own lock outlives the process that was killed. Here each build has a file that it locks
until the kernel ends it, whatever ends it, and that says what it makes and reads. Beside it lies
its journal, for who watches it.
"""

import fcntl
import json
import logging
import os
import platform
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.journal import JOURNAL, Journal

FOLDER = Path(".snakemake/ptq-dynamics-builds")
TURN = "turn"

_held: list[IO[str]] = []


def claim(
    folder: Path,
    makes: Iterable[str],
    reads: Iterable[str],
    jobs: Mapping[str, str] | None = None,
    *,
    local: bool = True,
) -> Journal:
    """Claim what this process is about to make, until it ends; where it notes how far it has come.

    `jobs` are the labels of its jobs, by their manifests, which run on this machine if `local`.
    Raises `Problem` when another build makes or reads some of it, or makes what this one reads.
    """
    mine = {"pid": os.getpid(), "makes": sorted(set(makes)), "reads": sorted(set(reads))}
    mine |= {"host": platform.node(), "started": time.time(), "local": local, "jobs": jobs or {}}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / TURN).open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        for path in folder.glob("*.json"):
            with path.open(encoding="utf-8") as file:
                if _is_free(file):
                    path.unlink()
                    path.with_suffix(JOURNAL).unlink(missing_ok=True)
                else:
                    _require_apart(mine, json.load(file))
        path = folder / f"{os.getpid()}.json"
        journal = Journal(path.with_suffix(JOURNAL))
        file = path.open("w", encoding="utf-8")
        _held.append(file)
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(mine, file)
        file.flush()
    return journal


def known(folder: Path) -> list[tuple[Path, bool]]:
    """The claims of builds, oldest first, each with whether that build is at work; the next build
    removes what is left of others."""
    try:
        with _no_claim_meanwhile(folder):
            found = [path for path in folder.glob("*.json") if path.with_suffix(JOURNAL).exists()]
            found.sort(key=lambda path: path.stat().st_mtime)
            return [(path, _is_held(path)) for path in found]
    except FileNotFoundError:
        return []


@contextmanager
def _no_claim_meanwhile(folder: Path) -> Iterator[None]:
    # A claim that is looked at seems to be held.
    with (folder / TURN).open() as turn:
        fcntl.flock(turn, fcntl.LOCK_SH)
        yield


def _is_held(path: Path) -> bool:
    with path.open(encoding="utf-8") as file:
        try:
            # Unlike an exclusive lock, it can be had of a file that is only read, also over NFS.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _is_free(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _require_apart(mine: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    makes, reads = set(mine["makes"]), set(mine["reads"])
    theirs = set(other["makes"])
    shared = sorted(makes & theirs) or sorted(makes & set(other["reads"]) | reads & theirs)
    if shared:
        raise Problem(
            f"another build (process {other['pid']}) is at work on {shared[0]}; run the same "
            "command again when it has ended"
        )


def pass_signals_on() -> None:
    """SIGINT and SIGTERM of this process, Snakemake, end its jobs too, wherever they came from."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_jobs)


def _end_jobs(number: int, frame: FrameType | None) -> None:
    import psutil

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Each job says in one line that it ends; Snakemake would add a paragraph.
    logging.disable()
    # At once, beside the lines of jobs.
    line = b"the build is interrupted; run the same command again to go on\n"
    with suppress(OSError):
        os.write(sys.stderr.fileno(), line)
    for process in psutil.Process().children(recursive=True):
        try:
            if "ptq_dynamics.engine.run" in process.cmdline():
                process.terminate()
        except psutil.Error:
            pass
    raise KeyboardInterrupt
