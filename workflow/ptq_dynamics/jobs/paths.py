"""Where the parts of a job's result lie."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
RECORD = "record.json"
DIGITS = 16  # of a job's fingerprint, in the name of its work folder
ABSENT = "absent.json"  # files of a result that were dropped


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
        return list(self.folder.glob(f"{self._work_prefix}{'[0-9a-f]' * DIGITS}"))

    def work(self, fingerprint: str) -> Path:
        """Work folder of the job with this fingerprint."""
        return self.folder / f"{self._work_prefix}{fingerprint[:DIGITS]}"

    @property
    def _prefix(self) -> str:
        return f"{self.stem}." if self.stem else ""

    @property
    def _work_prefix(self) -> str:
        return f".work-{self._prefix}"
