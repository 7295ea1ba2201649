"""Publishing of finished jobs: files move first, then the record, and the manifest last.

The work folder has the whole result before the first file moves, so another process can complete
the work of a killed one."""

import os
import shutil
from pathlib import Path

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.engine.paths import ABSENT, RECORD, Paths, beside

OUT, SCRATCH = "out", "scratch"  # below a work folder: what becomes the result, and states


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


def publish(work: Path, paths: Paths, made: record.Record) -> None:
    """Remove the files of an earlier result, and move those of a finished one to their place. The
    caller has the lease."""
    shutil.rmtree(work / SCRATCH, ignore_errors=True)  # no job may resume once files leave `out`
    names = sorted({file.split("/")[0] for file in made.files})
    waiting = [name for name in names if (work / OUT / name).exists()]
    # These list the old files.
    for path in (paths.record, paths.manifest, beside(paths.manifest, ABSENT)):
        path.unlink(missing_ok=True)
    if paths.stem is None:
        for entry in paths.folder.iterdir():
            moved = entry.name in names and entry.name not in waiting
            if not moved and not entry.name.startswith(".") and entry != paths.spec:
                entry.unlink() if entry.is_symlink() or entry.is_file() else shutil.rmtree(entry)
    for name in waiting:
        os.replace(work / OUT / name, paths.folder / name)
    # The record in the work folder stays until all is done.
    write_atomically(paths.record, made.text())
    write_atomically(paths.manifest, made.manifest(paths.manifest).text())
