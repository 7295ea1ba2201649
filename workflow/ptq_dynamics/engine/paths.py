"""Where the parts of a result lie."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
RECORD = "record.json"
SPECIFICATION = "spec.json"
ABSENT = "absent.json"  # files of a result that were dropped
PARTS = (MANIFEST, RECORD, SPECIFICATION, ABSENT)
WORK = ".work-"
DIGITS = 16  # of a job's identity, in the name of its work folder
TOKEN = 8  # digits of the lease's token there


def beside(path: str | Path, name: str) -> Path:
    """The part with this name of the result that another of its parts belongs to."""
    found = Path(path)
    own = next(part for part in PARTS if found.name.endswith(part))
    return found.with_name(found.name.removesuffix(own) + name)


def files(folder: Path) -> Iterator[Path]:
    """All files below a folder, links to folders followed, but what is of no result: specifications
    and what is hidden, as logs, leases and work of jobs."""
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and not name.endswith(SPECIFICATION):
                yield Path(place, name)


@dataclass(frozen=True)
class Paths:
    """Where a result lies: a job with a `stem` shares its folder with others and owns the files
    named STEM.*; the others own their whole folder."""

    folder: Path
    stem: str | None = None

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> "Paths":
        """The paths of a job, from its specification."""
        return cls(Path(job["folder"]), job["stem"])

    def part(self, name: str) -> Path:
        """A part of the result: MANIFEST, RECORD, SPECIFICATION or ABSENT."""
        return self.folder / f"{self._prefix}{name}"

    @property
    def manifest(self) -> Path:
        """The files and facts of the result; the output that Snakemake knows."""
        return self.part(MANIFEST)

    @property
    def record(self) -> Path:
        """How the result came to be, with all that the manifest says."""
        return self.part(RECORD)

    @property
    def spec(self) -> Path:
        """What the result has to be made from, as it was last planned."""
        return self.part(SPECIFICATION)

    @property
    def log(self) -> Path:
        """Progress lines, and the traceback of an error."""
        return self.folder / f".{self._prefix}log"

    @property
    def lease(self) -> Path:
        """Held by the process that makes the result."""
        return self.folder / f".{self._prefix}lease"

    def works(self, identity: str = "") -> list[Path]:
        """The work folders that there are, of this and of earlier specifications, or of the job
        with this identity alone."""
        name = identity[:DIGITS] or "[0-9a-f]" * DIGITS
        return list(self.folder.glob(f"{WORK}{self._prefix}{name}-{'[0-9a-f]' * TOKEN}"))

    def work(self, identity: str, token: str) -> Path:
        """Work folder of the job with this identity, for the process that has the lease."""
        return self.folder / f"{WORK}{self._prefix}{identity[:DIGITS]}-{token[:TOKEN]}"

    @property
    def _prefix(self) -> str:
        return f"{self.stem}." if self.stem else ""
