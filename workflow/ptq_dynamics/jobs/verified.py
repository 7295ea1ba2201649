"""Whether the files of a result are still those of its manifest, mostly without reading them.

A record is written after the files of its result. So a file that the system has not changed since
is as it was published. Any other is read, once: that its bytes were found right is kept beside
Snakemake's own notes, which may be lost at any time.
"""

import contextlib
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ptq_dynamics.content import sha256
from ptq_dynamics.jobs.manifest import Manifest

NOTES = Path(".snakemake/ptq-dynamics-verified")


class Verifier:
    """Compares files with manifests: by size and time of change, or all by their bytes if `deep`.

    It writes nothing down unless it `remembers`.
    """

    def __init__(self, *, deep: bool = False, remembers: bool = True) -> None:
        self.deep, self._remembers = deep, remembers

    def is_whole(self, result: Manifest, since: int) -> bool:
        """Whether all files are there as listed, but for dropped ones; `since` is the time, in
        nanoseconds, of its record."""
        absent, folder = set[str](), str(result.folder)
        for name, entry in result.files.items():
            # Some ten thousand files are looked at before every build.
            path = f"{folder}/{name}"
            try:
                found = os.stat(path)
            except FileNotFoundError:
                absent.add(name)
                continue
            if found.st_size != entry["size"]:
                return False
            if (self.deep or found.st_ctime_ns >= since) and not self._is_right(path, entry, found):
                return False
        return not absent or absent <= result.dropped()

    def _is_right(self, path: str, entry: Mapping[str, Any], found: os.stat_result) -> bool:
        times = f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
        note = f"{entry['sha256']} {times} {path}\n"
        if not self.deep and note in self._notes:
            return True
        right = sha256(Path(path)) == entry["sha256"]
        if right and self._remembers and note not in self._notes:
            self._notes.add(note)
            # Without them, as where nothing can be written, it is read again the next time.
            with contextlib.suppress(OSError):
                NOTES.parent.mkdir(exist_ok=True)
                with NOTES.open("a", encoding="utf-8") as file:
                    file.write(note)
        return right

    @cached_property
    def _notes(self) -> set[str]:
        try:
            text = NOTES.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return set()
        return set(text.splitlines(keepends=True))
