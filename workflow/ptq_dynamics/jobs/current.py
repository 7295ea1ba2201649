"""Whether a result is current: what its record says, against the job, its inputs and its files.

Planner and jobs ask the same question, and nothing but results answers it: where Snakemake's own
notes are lost, or results were copied, what is fresh stays fresh.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ptq_dynamics.content import canonical, sha256, write_atomically
from ptq_dynamics.jobs import manifest, record
from ptq_dynamics.jobs.manifest import Manifest
from ptq_dynamics.jobs.paths import Paths
from ptq_dynamics.jobs.verified import Verifier
from ptq_dynamics.problem import Problem

# Keys of a specification that say where code stands; what it is, its fingerprint says.
PLACES = ("stage", "modules")


class Results:
    """The results in this folder as they lie there; each manifest is read once."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self.damaged = set[str]()
        """Manifests of results that are what their jobs make, but for bytes of their files."""
        self._moved = dict[Path, Mapping[str, Any]]()

    def is_current(self, job: Mapping[str, Any], inputs: list[str], paths: Paths) -> bool:
        """Whether the result of just this job, given by its specification, from its inputs as they
        are, is there and whole."""
        found, account = self._read(paths.manifest), _account(paths.record)
        if found is None or account is None:
            return False
        result, digest = found
        same = (
            account.get("version") == record.VERSION
            and account.get("output") == {str(paths.manifest): digest}
            and account.get("inputs") == {path: self._digest(path) for path in inputs}
            and _is_alike(essence(account.get("job")), essence(job))
        )
        if not same:
            return False
        whole = self._verifier.is_whole(result)
        if not whole:
            self.damaged.add(str(paths.manifest))
        elif _stands(account["job"]) != _stands(job):
            self._moved[paths.record] = job
        return whole

    def note_moves(self) -> None:
        """Have the records of current results say where their code stands now, by which dropped
        files are made again."""
        for path, job in self._moved.items():
            known = record.read(path)
            write_atomically(path, replace(known, job=dict(job)).text())
        self._moved.clear()

    def _digest(self, path: str) -> str | None:
        found = self._read(Path(path))
        return found and found[1]

    @cache
    def _read(self, path: Path) -> tuple[Manifest, str] | None:
        try:
            result = manifest.read(path)
        except Problem:
            return None
        # That of its text, as `digest` has it: to write hundreds of manifests anew takes a second.
        return result, sha256(path)


def is_current(job: Mapping[str, Any]) -> bool:
    """Whether the result of a job, given by its specification, is current."""
    inputs = [path for group in job["inputs"].values() for path in group]
    return Results(Verifier()).is_current(job, inputs, Paths.of(job))


def _stands(job: Mapping[str, Any]) -> str:
    """Where the code of a job stands; what is a tuple here is a list in a record."""
    return canonical([job.get(key) for key in PLACES])


def essence(job: Mapping[str, Any] | None) -> dict[str, Any]:
    """What in a specification shapes the result: all but where the code stands, so that a moved
    module changes nothing."""
    return {key: value for key, value in (job or {}).items() if key not in PLACES}


def _is_alike(one: Any, other: Any) -> bool:
    """Whether both have the same canonical JSON, which takes several times as long to write."""
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and one.keys() == other.keys()
            and all(_is_alike(value, other[key]) for key, value in one.items())
        )
    if isinstance(one, list | tuple):
        return (
            isinstance(other, list | tuple)
            and len(one) == len(other)
            and all(map(_is_alike, one, other))
        )
    # 1, 1.0 and True are equal, and not the same.
    return type(one) is type(other) and bool(one == other)


def _account(path: Path) -> Mapping[str, Any] | None:
    """What a record says, as it stands there: to check all of it would take as long as to plan."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
