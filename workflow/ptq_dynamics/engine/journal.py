"""What a build notes as its jobs begin and end, a line each, for who watches it."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

JOURNAL = ".jobs"  # the ending of its file, beside the claim of the build

Kind = Literal["began", "done", "failed", "end"]


class Event(NamedTuple):
    """Something that happened to the job with this manifest, at a time in seconds since 1970; with
    the `seconds` that a job took, unless its result was right already. The end of a build is of no
    job; its `seconds` are 1 where all went well, else 0."""

    at: float
    kind: Kind
    manifest: str = ""
    seconds: float | None = None


class Journal:
    """The journal of this process, which is a build."""

    def __init__(self, path: Path) -> None:
        # A line at once, so that who reads sees whole ones.
        self._file = path.open("w", encoding="utf-8", buffering=1)

    def note(self, kind: Kind, manifest: str = "", seconds: float | None = None) -> None:
        """Note what has just happened."""
        # Where there is no room for it, the build goes on all the same.
        with contextlib.suppress(OSError):
            self._file.write(json.dumps(Event(time.time(), kind, manifest, seconds)) + "\n")


class Reader:
    """The journal of another process, read on from where it was read to."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def new(self) -> Iterator[Event]:
        """What has happened since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole, end, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return
        self._read += len(whole) + len(end)
        for line in whole.splitlines():
            yield Event(*json.loads(line))
