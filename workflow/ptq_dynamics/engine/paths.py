"""Paths of the parts of a result."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from typing_extensions import TypedDict  # which pydantic requires before Python 3.12

MANIFEST = "manifest.json"
RECORD = "record.json"
SPECIFICATION = "spec.json"
ABSENT = "absent.json"  # lists the files of a result that were dropped
TOP = ("results", "figures", "paper")  # they have one folder for each scale
PARTS = (MANIFEST, RECORD, SPECIFICATION, ABSENT)
Purpose = Literal["build", "restore", "compare"]  # of the run of a job
DIGITS = 16  # of a job's identity, in the name of its work folder


class Spec(TypedDict):
    """The specification of a job: what its result depends on, except the bytes of its inputs."""

    stage: str  # its module, below the package
    name: str
    folder: str
    stem: str | None  # of its files, in a shared folder
    inputs: Mapping[str, list[str]]  # paths of manifests by label
    settings: Any  # JSON of the type that the `run` of the stage names
    code: Mapping[str, str]  # digests by module
    libraries: Mapping[str, str]  # versions by distribution


def beside(path: str | Path, name: str) -> Path:
    """Return the path of another part of the result that `path` is a part of."""
    place = Path(path)
    own = next(part for part in PARTS if place.name.endswith(part))
    return place.with_name(place.name.removesuffix(own) + name)


def command(path: str | Path) -> str:
    """Return the command that builds the result with a part at `path`."""
    manifest = beside(path, MANIFEST)
    scale = f" --config scale={manifest.parts[1]}" if manifest.parts[0] in TOP else ""
    return f"snakemake {manifest}{scale}"


def files(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder, through links, except specifications and hidden files."""
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and not name.endswith(SPECIFICATION):
                yield Path(place, name)


class Paths:
    """Paths of a result. A job with a `stem` shares its folder with others and owns the files named
    STEM.*; any other job owns its whole folder."""

    def __init__(self, folder: Path, stem: str | None = None) -> None:
        self.folder, self.stem = folder, stem
        self._prefix = f"{stem}." if stem else ""
        self.manifest = folder / f"{self._prefix}{MANIFEST}"
        self.record, self.spec = (beside(self.manifest, name) for name in (RECORD, SPECIFICATION))
        self.log = folder / f".{self._prefix}log"
        self.lease = folder / f".{self._prefix}lease"

    @classmethod
    def of(cls, job: Spec) -> "Paths":
        """Return the paths of the job with this specification."""
        return cls(Path(job["folder"]), job["stem"])

    def works(self, identity: str = "") -> list[Path]:
        """List the work folders of this result, or those of the job with this identity."""
        name = identity[:DIGITS] or "[0-9a-f]" * DIGITS
        return list(self.folder.glob(f".work-{self._prefix}{name}-*"))

    def work(self, identity: str) -> Path:
        """Return the work folder of this job for the process that has the lease.
        A process whose lease was deleted has another one, and disturbs none."""
        owner = self.lease.stat().st_ino
        return self.folder / f".work-{self._prefix}{identity[:DIGITS]}-{owner}"
