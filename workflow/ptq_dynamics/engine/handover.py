"""Hand specifications over to job processes as files: command lines are too short for them."""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from ptq_dynamics.engine.specification import Job

DAYS = 30


class Handover:
    """The files that job processes read their specifications from, each named by its digest.

    So a file's path, the only param of a rule, changes with the specification, and several builds
    at once can write to one folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: dict[str, Job] = {}

    def file(self, job: Job) -> str:
        """Path of a job's file, which is not written yet."""
        digest = hashlib.sha256(job.spec().encode()).hexdigest()[:32]
        path = str(self._folder / f"{digest}.json")
        self._jobs[path] = job
        return path

    def job(self, file: str) -> Job | None:
        """The job that a file is for, if any."""
        return self._jobs.get(file)

    def write(self, files: Mapping[str, bool]) -> None:
        """Write those of the files that belong to jobs, each with whether it is to run even where
        its result is current, and remove what no build has needed for some time."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path, again in files.items():
            if path in self._jobs:
                spec = self._jobs[path].spec()
                whole = {"job": json.loads(spec), "again": True}
                self._write(path, json.dumps(whole) if again else spec)
        oldest = time.time() - DAYS * 24 * 3600
        for file in self._folder.iterdir():
            if file.stat().st_mtime < oldest:
                file.unlink(missing_ok=True)

    def _write(self, path: str, text: str) -> None:
        descriptor, temporary = tempfile.mkstemp(dir=self._folder)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
