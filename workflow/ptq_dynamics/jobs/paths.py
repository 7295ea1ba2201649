"""Where the parts of a job's result lie."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Paths:
    """Where a job's result, log and work folder lie.

    A job with a `stem` shares its folder with others and owns the files named STEM.*; the others
    own their whole folder.
    """

    def __init__(self, job: Mapping[str, Any]) -> None:
        stem = job.get("stem")
        prefix = f"{stem}." if stem else ""
        self.folder = Path(job["folder"])
        self.owns_folder = stem is None
        self.manifest = self.folder / f"{prefix}manifest.json"
        self.record = self.folder / f"{prefix}record.json"
        self.log = self.folder / f".{prefix}log"
        self.work_prefix = f".work-{prefix}"

    def work(self, fingerprint: str) -> Path:
        """Work folder of the job with this fingerprint."""
        return self.folder / f"{self.work_prefix}{fingerprint[:16]}"
