"""`ptq-dynamics measure --watch`: the same command again as checkpoints come and go."""

import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ptq_dynamics.base.checkpoints import CONFIG
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.hub.folders import LocalFile, listed

POLL = 2.0  # seconds between looks at the folders
Files = frozenset[tuple[Path, LocalFile]]  # with the folders of their checkpoints


def watch(folders: Sequence[Path], measure: Callable[[], None], *, piped: bool) -> None:
    """Call `measure` whenever checkpoints in folders are complete, or deleted; print its errors.
    If `piped`, input or the end of the standard input ends this, after a last call."""
    if lacking := [str(folder) for folder in folders if not folder.is_dir()]:
        raise Problem(f"--watch: {lacking[0]} is no folder; create it, or leave --watch out")
    print(f"watching {', '.join(map(str, folders))}; press Ctrl-C to end", flush=True)
    before, is_last = Files(), False
    while True:
        is_last |= piped and bool(select.select([sys.stdin], [], [], 0)[0])
        now = _files(folders)
        time.sleep(POLL)
        if now != _files(folders):
            continue  # a checkpoint is complete once nothing in it changes
        if now and now != before:
            before = now
            try:
                measure()
            except (Problem, OSError) as error:
                print(f"error: {error}", file=sys.stderr, flush=True)
        elif is_last:
            return


def _files(folders: Sequence[Path]) -> Files:
    """Return the files of all checkpoints in folders."""
    files = set[tuple[Path, LocalFile]]()
    for config in (path for folder in folders for path in folder.glob(f"*/{CONFIG}")):
        with suppress(FileNotFoundError):  # it is being deleted
            files |= {(config.parent, file) for file in listed(config.parent, bool)}
    return frozenset(files)
