"""Records: who, what, when and where of one result, written beside its manifest."""

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
from typing import Any

from pydantic import TypeAdapter

from ptq_dynamics.base.content import canonical
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import machine
from ptq_dynamics.engine.machine import Device, Git, Machine
from ptq_dynamics.engine.manifest import Files, Manifest
from ptq_dynamics.engine.paths import MANIFEST, beside

VERSION = 4
SEAL = "digest"  # of the text of a record, where this is empty
TRAINED = "tokens_processed"  # the fact of a run that says on how many tokens


@dataclass(frozen=True)
class Acceptance:
    """A declaration that another specification gives the same result: why, when (UTC), what
    differs, and the identity that the result had before."""

    reason: str
    when: str
    differs: tuple[str, ...]
    identity: str


@dataclass(frozen=True)
class Record:
    """How a result came to be; times in UTC and seconds, memory in bytes.

    `job` is the specification; `inputs` maps paths of manifests to their digests; `files` and
    `facts` are those of the result's manifest; `cpu_seconds` are those of all processes of the
    job, `peak_memory` that of the largest one. With `accepted` specifications, `job` is the last.
    `second` describes how dropped files that were built again differ from the first ones.
    """

    job: Mapping[str, Any]
    inputs: Mapping[str, str]
    files: Files
    facts: dict[str, Any]
    packages: Mapping[str, str | None]
    git: Git | None
    machine: Machine
    device: Device
    started: str
    seconds: float
    cpu_seconds: float
    peak_memory: int
    threads: int | None
    processes: int
    accepted: tuple[Acceptance, ...] = ()
    second: str = ""
    version: int = VERSION

    def text(self) -> str:
        """The record as it stands on disk, with a digest of itself."""
        content = {**asdict(self), SEAL: ""}
        text = json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"
        return text.replace(_seal(""), _seal(hashlib.sha256(text.encode()).hexdigest()), 1)

    def manifest(self, path: Path) -> Manifest:
        """The manifest of the result, which lies at `path`."""
        return Manifest(path, self.files, self.facts)

    @property
    def identity(self) -> str:
        """Hex digest of all that the result depends on."""
        return identity(self.job, self.inputs)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of an up-to-date result, in words."""
        edits = [f"made by commit {self.git}"] if self.git and self.git.dirty else []
        accepted = (f"accepted: {each.reason}" for each in self.accepted)
        return (*accepted, *[self.second] * bool(self.second), *edits)

    @property
    def carried(self) -> str:
        """The identity that the result was made with, which its pictures carry."""
        return self.accepted[0].identity if self.accepted else self.identity


def identity(job: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """Hex digest of a specification, and of the manifests that the job reads by their paths."""
    inputs = {label: [digests[path] for path in paths] for label, paths in job["inputs"].items()}
    return hashlib.sha256(canonical([job, inputs]).encode()).hexdigest()


def _seal(digest: str) -> str:
    return f'\n "{SEAL}": "{digest}"'


def read(path: Path, text: str | None = None) -> Record:
    """Read a record, or take its `text` from an archive, and verify its seal; `Problem` where it is
    missing, damaged or old."""
    mend = f"remove {path} and build again"
    try:
        text = path.read_text(encoding="utf-8") if text is None else text
        found = json.loads(text)
        version, digest = found["version"], found.pop(SEAL)
        if version != VERSION:
            raise Problem(f"{path} has version {version}, this code reads {VERSION}; {mend}")
        before = text.replace(_seal(str(digest)), _seal(""), 1)
        if hashlib.sha256(before.encode()).hexdigest() != digest:
            raise Problem(f"{path} is not as it was written (its digest differs); {mend}")
        return _reader().validate_python(found)
    except FileNotFoundError:
        result = beside(path, MANIFEST)
        raise Problem(f"{path} is missing; build it with snakemake {result}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise Problem(f"{path} is no record ({reason}); {mend}") from None


# To build it takes longer than to read a hundred records with it.
_reader = cache(lambda: TypeAdapter(Record))


def describe(
    job: Mapping[str, Any],
    inputs: Mapping[str, list[Manifest]],
    output: Manifest,
    commit: Git | None,
    started: datetime.datetime,
    seconds: float,
) -> Record:
    """The record of a result that was made in this process and its children; `commit` is that of
    the code when the job read it."""
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    unit = 1 if sys.platform == "darwin" else 1024
    return Record(
        job=dict(job),
        inputs={str(m.path): m.digest() for group in inputs.values() for m in group},
        files=output.files,
        facts=output.facts,
        packages={name: machine.installed(name) for name in job["libraries"]},
        git=commit,
        machine=machine.this(),
        device=machine.device(),
        started=started.isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        cpu_seconds=round(sum(u.ru_utime + u.ru_stime for u in (own, children)), 3),
        peak_memory=max(own.ru_maxrss, children.ru_maxrss) * unit,
        threads=int(os.environ.get("OMP_NUM_THREADS", 0)) or os.cpu_count(),
        processes=output.facts.get("processes", 1),
    )
