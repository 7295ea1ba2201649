"""Whether a result is current: what its record says, against the job, its inputs and its files.

Planner and jobs ask the same question, and nothing but results answers it: where Snakemake's own
notes are lost, or results were copied, what is fresh stays fresh.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import canonical, parsed, sha256, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import fingerprint, manifest, record
from ptq_dynamics.engine.fingerprint.code import DEFINITIONS, Definitions
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.verified import Verifier


class Results:
    """The results in this folder as they lie there; each manifest is read once."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self.damaged = set[str]()
        """Manifests of results that are what their jobs make, but for bytes of their files."""
        self.accepted = dict[str, str]()
        """Reasons that stand for a result's being made again, by manifests of current ones."""
        self._moved = dict[Path, tuple[Mapping[str, Any], int | None]]()

    def is_current(self, job: Mapping[str, Any], inputs: list[str], paths: Paths) -> bool:
        """Whether the result of just this job, given by its specification, from its inputs as they
        are, is there and whole."""
        found, account = self._read(paths.manifest), account_of(paths.record)
        if found is None or account is None:
            return False
        result, digest = found
        digests = {path: self._digest(path) for path in inputs}
        same = (
            account.get("version") == record.VERSION
            and account.get("output") == {str(paths.manifest): digest}
            and account.get("inputs") == digests
        )
        if not same:
            return False
        now = _is_alike(record.essence(account.get("job")), record.essence(job))
        accepted = account.get("accepted") or []
        # What was accepted and then undone is what it was before.
        before = None if now else _before(account, job, digests)
        if not now and before is None:
            return False
        accepted = accepted[:before]
        whole = self._verifier.is_whole(result)
        if not whole:
            self.damaged.add(str(paths.manifest))
        elif accepted:
            self.accepted[str(paths.manifest)] = "; ".join(each["reason"] for each in accepted)
        if whole and (before is not None or _stands(account["job"]) != _stands(job)):
            self._moved[paths.record] = job, before
        return whole

    def files(self, paths: Paths) -> list[str]:
        """The files by which a result is current: its manifest, record, what that lists, and where
        some of that was dropped, the note of it."""
        found = self._read(paths.manifest)
        names = found[0].files.keys() if found else set[str]()
        dropped = found[0].dropped() if found else set[str]()
        own = [paths.manifest, paths.record, *([paths.absent] if dropped else [])]
        return [*map(str, own), *(f"{paths.folder}/{name}" for name in names - dropped)]

    def note_moves(self) -> None:
        """Have the records of current results say where their code stands now, by which dropped
        files are made again; what was accepted and undone no longer stands in them."""
        for path, (job, before) in self._moved.items():
            known = record.read(path)
            accepted = known.accepted[:before]
            renewed = replace(known, job=dict(job), accepted=accepted)
            was = known.made_with if before is None else known.accepted[before].identity
            if renewed.made_with != was:
                # From when records had version 2.
                held = _definitions(job)
                renewed = replace(renewed, job={**job, DEFINITIONS: held})
            write_atomically(path, renewed.text())
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


def _before(
    account: Mapping[str, Any], job: Mapping[str, Any], digests: Mapping[str, str | None]
) -> int | None:
    """Before which of the changes that were accepted for a result its record had the identity that
    the job has now; None where it never had."""
    accepted = account.get("accepted") or []
    if not accepted or None in digests.values():
        return None
    labels: Mapping[str, list[str]] = job["inputs"]
    read = {key: [str(digests[path]) for path in paths] for key, paths in labels.items()}
    identities = {record.identity(job, read)}
    if held := _definitions(job):
        identities.add(record.former(job, held, read))
    for number, each in enumerate(accepted):
        if each["identity"] in identities:
            return number
    return None


def _definitions(job: Mapping[str, Any]) -> Definitions | None:
    """What the code of a job is; None where there is none by this name."""
    try:
        return fingerprint.planned(job["stage"], job.get("modules", ()), ()).definitions
    except Problem:
        return None


def is_current(job: Mapping[str, Any]) -> bool:
    """Whether the result of a job, given by its specification, is current."""
    inputs = [path for group in job["inputs"].values() for path in group]
    return Results(Verifier()).is_current(job, inputs, Paths.of(job))


def _stands(job: Mapping[str, Any]) -> str:
    """Where the code of a job stands; what is a tuple here is a list in a record."""
    return canonical([job.get(key) for key in record.PLACES])


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


def account_of(path: Path) -> Mapping[str, Any] | None:
    """What a record says, as it stands there: to check all of it would take as long as to plan."""
    try:
        text = path.read_text(encoding="utf-8")
        content = parsed(text)
    except (OSError, ValueError):
        return None
    is_whole = isinstance(content, dict) and record.is_sealed(text, content.get(record.SEAL))
    try:
        return record.as_now(content) if is_whole else None
    except (KeyError, TypeError):
        return None
