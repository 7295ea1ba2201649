"""Whether the files of a result are still those of its manifest, mostly without reading them.

A job notes size and times of each file that it publishes. A file that has just these is as it was
published; any other is read, once: that its bytes were found right is noted too. The notes lie
beside Snakemake's own, which may be lost at any time.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.manifest import Manifest

NOTES = Path(".snakemake/ptq-dynamics-verified")
# The first line: how many notes there were when the file was last written anew.
HEAD = "notes: "
SPARE = 1000  # notes more than twice as many, with which it is


class Verifier:
    """Compares files with manifests: by size and times, or all by their bytes if `deep`.

    It writes nothing down unless it `remembers`.
    """

    def __init__(self, *, deep: bool = False, remembers: bool = True) -> None:
        self.deep, self._remembers = deep, remembers

    def is_whole(self, result: Manifest) -> bool:
        """Whether all files are there as listed, but for dropped ones."""
        return self.harm(result) is None

    def harm(self, result: Manifest) -> str | None:
        """The first file that is not as listed, and how; None where all are, but for dropped
        ones."""
        absent, folder, read = set[str](), str(result.folder), list[str]()
        for name, entry in result.files.items():
            # Some ten thousand files are looked at before every build.
            path = f"{folder}/{name}"
            try:
                found = os.stat(path)
            except FileNotFoundError:
                absent.add(name)
                continue
            except OSError as error:
                return f"{path} cannot be read ({error.strerror})"
            if found.st_size != entry["size"]:
                return f"{path} has {found.st_size} bytes instead of {entry['size']}"
            line = _line(path, entry, found)
            if self.deep or line not in self._notes:
                if _digest(path) != entry["sha256"]:
                    return f"{path} has other bytes than were published"
                read.append(line)
        if self._remembers:
            _append(line for line in read if line not in self._notes)
        self._notes.update(read)
        try:
            lost = absent - result.dropped() if absent else absent
        except Problem as problem:
            return str(problem)
        return f"{folder}/{min(lost)} is missing" if lost else None

    @cached_property
    def _notes(self) -> set[str]:
        lines = _read()
        found = set(lines)
        if self._remembers and len(lines) > 2 * _number(lines) + SPARE:
            found = set(filter(_holds, found))
            _write(found)
        return found


def note(result: Manifest, names: Iterable[str]) -> None:
    """Note files that have come to their place as this process has just read them."""
    lines = []
    for name in names:
        path, entry = f"{result.folder}/{name}", result.files[name]
        with contextlib.suppress(OSError):
            found = os.stat(path)
            if found.st_size == entry["size"]:
                lines.append(_line(path, entry, found))
    _append(lines)


def _digest(path: str) -> str | None:
    with contextlib.suppress(OSError):
        return sha256(Path(path))
    return None


def _line(path: str, entry: Mapping[str, Any], found: os.stat_result) -> str:
    times = f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
    return f"{entry['sha256']} {times} {path}"


def _holds(line: str) -> bool:
    """Whether a file is still as its note says."""
    try:
        digest, _, _, _, path = line.split(" ", 4)
        return _line(path, {"sha256": digest}, os.stat(path)) == line
    except (OSError, ValueError):
        return False


def _read() -> list[str]:
    try:
        text = NOTES.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.split("\n")


def _number(lines: list[str]) -> int:
    with contextlib.suppress(IndexError, ValueError):
        return int(lines[0].removeprefix(HEAD))
    return 0


def _append(lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    # Where nothing can be written, what they say is read again the next time.
    with contextlib.suppress(OSError):
        if text:
            NOTES.parent.mkdir(exist_ok=True)
            # At once, beside other jobs that do the same.
            descriptor = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            with open(descriptor, "ab", buffering=0) as file:
                file.write(text.encode())


def _write(found: Iterable[str]) -> None:
    lines = sorted(found)
    with contextlib.suppress(OSError):
        descriptor, name = tempfile.mkstemp(dir=NOTES.parent)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in [f"{HEAD}{len(lines)}", *lines])
        os.replace(name, NOTES)
