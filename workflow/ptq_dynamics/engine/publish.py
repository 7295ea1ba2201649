"""Publishing of finished jobs: files move first, then the record, and the manifest last.

The work folder has the whole result before the first file moves, so another process can complete
the work of a killed one. Each owner of the lease has its own work folder. A process that lost the
lease finds its folder gone, and can change nothing."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from filelock import Timeout

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.engine.lease import lease_on
from ptq_dynamics.engine.paths import ABSENT, RECORD, Paths, beside

OUT, SCRATCH = "out", "scratch"  # below a work folder: what becomes the result, and states


def take_over(paths: Paths, identity: str, token: str) -> Path:
    """Return the work folder of a lease's owner, with the newest work of earlier owners under a new
    name, so that these no longer find it."""
    work = paths.work(identity, token)
    left = sorted(paths.works(identity), key=lambda path: path.stat().st_mtime)
    for older in left[:-1]:
        shutil.rmtree(older, ignore_errors=True)
    for newest in left[-1:]:
        os.replace(newest, work)
    return work


def is_prepared(work: Path, paths: Paths) -> bool:
    """Return whether an earlier process finished the work, and none of its files is lost."""
    try:
        files = record.read(work / RECORD).files
    except Problem:
        return False
    for name, entry in files.items():
        places = [path for path in (work / OUT / name, paths.folder / name) if path.exists()]
        if not any(path.stat().st_size == entry["size"] for path in places):
            return False
    return True


def publish(work: Path, paths: Paths, made: record.Record, require: Callable[[], None]) -> None:
    """Remove the files of an earlier result, and move those of a finished one to their place.
    `require` raises if this process has lost the lease."""
    require()
    shutil.rmtree(work / SCRATCH, ignore_errors=True)  # no job may resume once files leave `out`
    names = sorted({file.split("/")[0] for file in made.files})
    waiting = [name for name in names if (work / OUT / name).exists()]
    old = work / "old"
    shutil.rmtree(old, ignore_errors=True)
    old.mkdir()
    # These list the old files.
    for path in (paths.record, paths.manifest, beside(paths.manifest, ABSENT)):
        if path.exists():
            os.replace(path, old / path.name)
    if paths.stem is None:
        for entry in paths.folder.iterdir():
            moved = entry.name in names and entry.name not in waiting
            if not moved and not entry.name.startswith(".") and entry != paths.spec:
                os.replace(entry, old / entry.name)
    for name in waiting:
        os.replace(work / OUT / name, paths.folder / name)
    require()
    # The record in the work folder stays until all is done.
    copy, manifest = work / "copy", made.manifest(paths.manifest)
    for text, target in ((made.text(), paths.record), (manifest.text(), paths.manifest)):
        write_atomically(copy, text)
        os.replace(copy, target)


def clear(paths: Paths) -> None:
    """Remove work folders that killed jobs left of a published result; the caller has its lease.
    Work of other specifications stays, as an edit may be undone, and so does that on dropped files.
    Raises `Problem` if there is no result."""
    made = record.read(paths.record)
    identities = {made.identity, *(acceptance.identity for acceptance in made.accepted)}
    if not made.manifest(paths.manifest).dropped():
        for folder in (path for identity in identities for path in paths.works(identity)):
            shutil.rmtree(folder, ignore_errors=True)


def sweep_works(paths: Paths) -> None:
    """Do what `clear` does, unless another process has the lease."""
    if paths.works():
        with suppress(Problem, Timeout, OSError), lease_on(paths.lease):
            clear(paths)
