"""Records: how a result was made, written beside its manifest."""

import datetime
import hashlib
import json
import os
import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from pydantic import SkipValidation, TypeAdapter

from ptq_dynamics.base.content import canonical
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import machine
from ptq_dynamics.engine.machine import Device, Git, Machine
from ptq_dynamics.engine.manifest import Facts, Files, Manifest
from ptq_dynamics.engine.paths import Spec, command

VERSION = 4
SEAL = "digest"  # the key with the digest of the record's text, in which this value is empty
TRAINED = "tokens_processed"  # the fact of a run with its number of tokens


@dataclass(frozen=True)
class Acceptance:
    """A declaration that another specification gives the same result: reason, time (UTC),
    differences, and the earlier identity of the result."""

    reason: str
    when: str
    differs: tuple[str, ...]
    identity: str


@dataclass(frozen=True)
class Record:
    """How a result was made; times in UTC and seconds, memory in bytes."""

    # With `accepted` ones, the last. Old specifications may have other keys.
    job: SkipValidation[Spec]
    inputs: Mapping[str, str]  # digests of manifests by path
    files: Files  # as in the manifest
    facts: Facts
    packages: Mapping[str, str | None]
    git: Git | None
    machine: Machine
    device: Device
    started: str
    seconds: float
    cpu_seconds: float  # of all processes of the job
    peak_memory: int  # of the largest process
    threads: int | None
    processes: int
    accepted: tuple[Acceptance, ...] = ()
    second: str = ""  # how files that were dropped and built again differ from the first
    version: int = VERSION

    def text(self) -> str:
        """Return the content of the record's file, with a digest of itself."""
        content = {**asdict(self), SEAL: ""}
        text = json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"
        return text.replace(_seal(""), _seal(hashlib.sha256(text.encode()).hexdigest()), 1)

    def manifest(self, path: Path) -> Manifest:
        """Return the manifest of the result, for `path`."""
        return Manifest(path, self.files, self.facts)

    @property
    def identity(self) -> str:
        """Hex digest of everything that the result depends on."""
        return identity(self.job, self.inputs)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about an up-to-date result."""
        edits = [f"made by commit {self.git}"] if self.git and self.git.dirty else []
        accepted = (f"accepted: {acceptance.reason}" for acceptance in self.accepted)
        return (*accepted, *[self.second] * bool(self.second), *edits)

    @property
    def carried(self) -> str:
        """The identity at the time of the run, which is also in the files of a figure."""
        return self.accepted[0].identity if self.accepted else self.identity


def identity(job: Spec, digests: Mapping[str, str]) -> str:
    """Return the hex digest of a specification and of the digests of its inputs by path."""
    inputs = {label: [digests[path] for path in paths] for label, paths in job["inputs"].items()}
    return hashlib.sha256(canonical([job, inputs]).encode()).hexdigest()


def _seal(digest: str) -> str:
    return f'\n "{SEAL}": "{digest}"'


def read(path: Path, text: str | None = None) -> Record:
    """Read a record, or its `text` from an archive, and verify its digest. Raises `Problem` if it
    is missing, damaged or old."""
    mend = f"remove {path} and build again"
    try:
        text = path.read_text(encoding="utf-8") if text is None else text
        content = json.loads(text)
        version, digest = content["version"], content.pop(SEAL)
        if version != VERSION:
            raise Problem(f"{path} has version {version}, this code reads {VERSION}; {mend}")
        before = text.replace(_seal(str(digest)), _seal(""), 1)
        if hashlib.sha256(before.encode()).hexdigest() != digest:
            raise Problem(f"{path} is not as it was written (its digest differs); {mend}")
        return _reader().validate_python(content)
    except FileNotFoundError:
        raise Problem(f"{path} is missing; build it with {command(path)}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise Problem(f"{path} is no record ({reason}); {mend}") from None


_reader = cache(lambda: TypeAdapter(Record))  # slow to build


def describe(
    job: Spec,
    inputs: Mapping[str, list[Manifest]],
    output: Manifest,
    commit: Git | None,
    started: datetime.datetime,
    seconds: float,
) -> Record:
    """Return the record of a result of this process and its children."""
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    unit = 1 if sys.platform == "darwin" else 1024
    return Record(
        job={**job},
        inputs={str(m.path): m.digest() for group in inputs.values() for m in group},
        files=output.files,
        facts=output.facts,
        packages={name: machine.installed(name) for name in job["libraries"]},
        git=commit,
        machine=machine.this(),
        device=machine.used_device(),
        started=started.isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        cpu_seconds=round(sum(u.ru_utime + u.ru_stime for u in (own, children)), 3),
        peak_memory=max(own.ru_maxrss, children.ru_maxrss) * unit,
        threads=int(os.environ.get(machine.THREADS, 0)) or os.cpu_count(),
        processes=output.facts.get("processes", 1),
    )
