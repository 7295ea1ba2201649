"""How a finished job becomes a result: files first, then the record, the manifest last.

What is to be published stands in the work folder before the first file moves, so a process that is
killed in between leaves the rest to the next one, which computes nothing again.

Each owner of the lease gives the work folder a name of its own, and all that happens to a result is
a move out of that folder or into it. So who lost the lease without knowing, as a process on a node
that the network lost, can do nothing any more: its folder is gone.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import MANIFEST, RECORD, Paths

OUT = "out"  # below a work folder: what becomes the result


def mend_times(inputs: Iterable[str]) -> None:
    """Give inputs from the future the time that it is: after a clock was set back, Snakemake takes
    outputs that are older than their inputs for wrong."""
    for path in inputs:
        with contextlib.suppress(OSError):
            if os.stat(path).st_mtime > time.time():
                os.utime(path)


def take_over(paths: Paths, identity: str, token: str, former: str | None = None) -> Path:
    """The work folder of the owner of a lease with this token: what earlier owners left of the same
    work, under a name by which they do not find it; `former` is the identity of that as they may
    have taken it."""
    work = paths.work(identity, token)
    left = [*(paths.left(former) if former else ()), *paths.left(identity)]
    for older in left[:-1]:
        shutil.rmtree(older, ignore_errors=True)
    for newest in left[-1:]:
        os.replace(newest, work)
    return work


def prepare(work: Path, result: Manifest, account: str) -> None:
    """Write down that `work`/out is finished, with its manifest and record."""
    write_atomically(work / RECORD, account)
    write_atomically(work / MANIFEST, result.text())


def is_prepared(work: Path, paths: Paths) -> bool:
    """Whether an earlier process finished what is in the work folder, and all of it is there or
    has moved to its place."""
    try:
        files = manifest.read(work / MANIFEST).files
    except Problem:
        return False
    return all(
        any(_size(folder / name) == entry["size"] for folder in (work / OUT, paths.folder))
        for name, entry in files.items()
    )


def is_worth_keeping(work: Path, resumable: bool) -> bool:
    """Whether a job could go on from what an earlier process left in a work folder: from state, if
    its stage is `resumable`, or with publishing."""
    scratch = work / "scratch"
    has_state = resumable and scratch.is_dir() and any(scratch.iterdir())
    return has_state or (work / MANIFEST).exists()


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


def publish(work: Path, paths: Paths, require: Callable[[], None]) -> None:
    """Move the files of a prepared result to their place, after removing those of an earlier one.

    `require` raises when the folder is no longer this process's.
    """
    require()
    result = manifest.read(work / MANIFEST)
    names = sorted({file.split("/")[0] for file in result.files})
    waiting = [name for name in names if (work / OUT / name).exists()]
    old = work / "old"
    shutil.rmtree(old, ignore_errors=True)
    old.mkdir()
    # What they list is about to go. Snakemake puts back a manifest that a job has left out.
    for path in (paths.record, paths.manifest):
        if path.exists():
            _move(path, old / path.name)
    manifest.forget_dropped(paths.manifest)
    if paths.owns_folder:
        for entry in paths.folder.iterdir():
            moved = entry.name in names and entry.name not in waiting
            if not moved and not entry.name.startswith("."):
                _move(entry, old / entry.name)
    for name in waiting:
        _move(work / OUT / name, paths.folder / name)
    require()
    for source, target in ((work / RECORD, paths.record), (work / MANIFEST, paths.manifest)):
        # The ones in the work folder stay until all is done.
        copy = work / f"{source.name}.copy"
        write_atomically(copy, source.read_text(encoding="utf-8"))
        _move(copy, target)


def _move(source: Path, target: Path) -> None:
    os.replace(source, target)
