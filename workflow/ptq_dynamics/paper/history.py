"""How the paper's inputs came to be, by their records and those of all they were made from.

Records hold dates, commits and machines. What a job depends on are digests, of which these are no
part: so a result that was made anew, to the same bytes, leaves the paper as it is.
"""

import datetime
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ptq_dynamics.base.content import canonical
from ptq_dynamics.engine import record
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import RECORD, beside
from ptq_dynamics.engine.record import Record

UNKNOWN = "no repository"


@dataclass(frozen=True)
class History:
    """Records by the path of the manifest that they are of, and the manifests that have none
    here."""

    records: Mapping[str, Record]
    unknown: tuple[str, ...]

    @cached_property
    def newest(self) -> datetime.datetime:
        """When the last of them was done, to the second."""
        return max(map(ended, self.records.values()))

    @cached_property
    def commits(self) -> Counter[str]:
        """How many results were made at which commit; one with a `+` had edits."""
        return Counter(commit(each) for each in self.records.values())

    @cached_property
    def packages(self) -> dict[str, list[str]]:
        """Versions of all libraries that results were made with, by name."""
        found = dict[str, set[str]]()
        for each in self.records.values():
            for name, version in each.packages.items():
                if version is not None:
                    found.setdefault(name, set()).add(version)
        return {name: sorted(found[name]) for name in sorted(found, key=str.casefold)}

    @property
    def environment(self) -> str:
        """Hex digest of the versions of all libraries and of Python."""
        pythons = sorted({each.machine.python for each in self.records.values()})
        return hashlib.sha256(canonical([self.packages, pythons]).encode()).hexdigest()

    @cached_property
    def machines(self) -> dict[tuple[str, ...], list[Record]]:
        """Records by kind of machine and device, the one with most of them first."""
        found = dict[tuple[str, ...], list[Record]]()
        for each in self.records.values():
            found.setdefault(_machine(each), []).append(each)
        ordered = sorted(found, key=lambda kind: (-len(found[kind]), kind))
        return {kind: found[kind] for kind in ordered}


def read(inputs: Iterable[Manifest]) -> History:
    """The records of some results and of all they were made from.

    Raises `Problem` where a record is damaged, or that of one of `inputs` is missing.
    """
    records, unknown = dict[str, Record](), set[str]()
    first = {str(each.path): each.digest() for each in inputs}
    waiting = dict(first)
    while waiting:
        path, digest = waiting.popitem()
        if path in records or path in unknown:
            continue
        place = beside(path, RECORD)
        # Of what was taken over from elsewhere, not all records need to be here.
        if path not in first and not place.exists():
            unknown.add(path)
            continue
        found = record.read(place)
        if found.output.get(path) != digest:
            unknown.add(path)
            continue
        records[path] = found
        waiting |= found.inputs
    return History({path: records[path] for path in sorted(records)}, tuple(sorted(unknown)))


def of(manifest: Manifest, history: History) -> Record:
    """The record of one of the inputs."""
    path = str(manifest.path)
    return history.records.get(path) or record.read(Path(beside(path, RECORD)))


def ended(found: Record) -> datetime.datetime:
    """When a result was done, in UTC, to the second."""
    began = datetime.datetime.fromisoformat(found.started)
    if began.tzinfo is None:
        began = began.replace(tzinfo=datetime.UTC)
    done = began.astimezone(datetime.UTC) + datetime.timedelta(seconds=found.seconds)
    return done.replace(microsecond=0)


def commit(found: Record) -> str:
    """The commit that a result was made at, with a `+` where the code had edits."""
    if found.git is None:
        return UNKNOWN
    return found.git.commit + ("+" if found.git.dirty else "")


def _machine(found: Record) -> tuple[str, ...]:
    machine, device = found.machine, found.device
    return (
        machine.processor or machine.architecture,
        f"{machine.system} {machine.architecture}, Python {machine.python}",
        f"{machine.cores or 'unknown'} cores, {machine.memory / 2**30:.0f} GiB",
        device.kind if device.name is None else f"{device.count or 1} × {device.name}",
    )
