"""Where the parts of a job's result lie."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
RECORD = "record.json"
DIGITS = 16  # of a job's fingerprint, in the name of its work folder
TOKEN = 8  # digits of the lease's token there
ABSENT = "absent.json"  # files of a result that were dropped
WORK = ".work-"
# Hidden files that are of no result: of jobs, of the packages that hold leases and run jobs, and of
# those who look at folders.
PASSING = re.compile(r"\.(.+\.)?(log|lease(\..+)?|partial)|\.snakemake_timestamp|\.DS_Store")


def beside(path: str | Path, name: str) -> Path:
    """The manifest, record or note of dropped files, by its `name`, of the result that another of
    these is of."""
    found = Path(path)
    own = next(part for part in (MANIFEST, RECORD, ABSENT) if found.name.endswith(part))
    return found.with_name(found.name.removesuffix(own) + name)


def records(folder: Path) -> Iterator[Path]:
    """What is called as a record below a folder, in no order. Work folders are passed over: they
    move and vanish while jobs run."""
    for place, folders, files in walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(place, name) for name in (*files, *folders) if name.endswith(RECORD))


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """As `os.walk`, through links to folders too, which may lie on another disk. A link to what
    lies beside the folder or around it, or is followed already, is a file."""
    around = folder.parent.resolve()
    followed = {around}
    for place, folders, files in os.walk(folder, followlinks=True):
        for name in sorted(folders):
            path = Path(place, name)
            if path.is_symlink():
                target = path.resolve()
                if any(_overlap(target, each) for each in followed):
                    folders.remove(name)
                    files.append(name)
                else:
                    followed.add(target)
        yield place, folders, files


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def is_passing(path: Path) -> bool:
    """Whether a file, by its path below a folder of results, is a log, lease or work of a job, or
    was left by one that was killed while it wrote."""
    *folders, name = path.parts
    return bool(PASSING.fullmatch(name)) or any(each.startswith(WORK) for each in folders)


@dataclass(frozen=True)
class Paths:
    """Where a job's result, log and work folder lie.

    A job with a `stem` shares its folder with others and owns the files named STEM.*; the others
    own their whole folder.
    """

    folder: Path
    stem: str | None = None

    @classmethod
    def at(cls, folder: str, stem: str | None = None) -> "Paths":
        """The paths of a job, or in a rule of many jobs: wildcards may stand in folder and stem."""
        return cls(Path(folder), stem)

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> "Paths":
        """The paths of a job, from its specification."""
        return cls.at(job["folder"], job["stem"])

    @property
    def owns_folder(self) -> bool:
        """Whether all that lies in the folder is the job's."""
        return self.stem is None

    @property
    def manifest(self) -> Path:
        """The result's manifest, written last."""
        return self.folder / f"{self._prefix}{MANIFEST}"

    @property
    def record(self) -> Path:
        """How the result came to be."""
        return self.folder / f"{self._prefix}{RECORD}"

    @property
    def absent(self) -> Path:
        """Which files of the result were dropped."""
        return self.folder / f"{self._prefix}{ABSENT}"

    @property
    def log(self) -> Path:
        """Progress lines, and the traceback of what failed."""
        return self.folder / f".{self._prefix}log"

    @property
    def lease(self) -> Path:
        """Held by the process that makes the result."""
        return self.folder / f".{self._prefix}lease"

    @property
    def published(self) -> list[str]:
        """What Snakemake knows of a result: its manifest."""
        return [str(self.manifest)]

    def works(self) -> list[Path]:
        """The work folders that there are, of this and of earlier specifications."""
        digit = "[0-9a-f]"
        names = (f"{digit * DIGITS}", f"{digit * DIGITS}-{digit * TOKEN}")
        return [path for name in names for path in self.folder.glob(f"{self._work_prefix}{name}")]

    def work(self, fingerprint: str, token: str) -> Path:
        """Work folder of the job with this fingerprint, for who has the lease with this token."""
        return self.folder / f"{self._work_prefix}{fingerprint[:DIGITS]}-{token[:TOKEN]}"

    def left(self, fingerprint: str) -> list[Path]:
        """What others left of the work of the job with this fingerprint, the newest last."""
        prefix = f"{self._work_prefix}{fingerprint[:DIGITS]}"
        found = [path for path in self.works() if path.name.startswith(prefix)]
        return sorted(found, key=lambda path: path.stat().st_mtime)

    @property
    def _prefix(self) -> str:
        return f"{self.stem}." if self.stem else ""

    @property
    def _work_prefix(self) -> str:
        return f"{WORK}{self._prefix}"
