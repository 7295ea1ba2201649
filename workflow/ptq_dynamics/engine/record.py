"""Records: who, what, when and where of one result, written beside its manifest."""

import datetime
import hashlib
import json
import os
import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ptq_dynamics.base.content import canonical, parsed
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import machine
from ptq_dynamics.engine.fingerprint.code import DEFINITIONS, Definitions, over
from ptq_dynamics.engine.fingerprint.versions import installed, wheel
from ptq_dynamics.engine.machine import Device, Machine
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import MANIFEST, beside
from ptq_dynamics.engine.repository import Git

VERSION = 3
# Held the definitions of its code, and not the digest over them.
LISTING = 2
# Of the text of a record, where this is empty.
SEAL = "digest"
# Keys of a specification that say where code stands; what it is, its fingerprint says.
PLACES = ("stage", "modules")


@dataclass(frozen=True)
class Acceptance:
    """Someone's word that another specification gives the same result: why, when (UTC), what
    differs, and the identity that the result had before; with several processes, the digest of
    their code then."""

    reason: str
    when: str
    differs: tuple[str, ...]
    identity: str
    processes: str | None = None


@dataclass(frozen=True)
class Record:
    """How a result came to be; times in UTC and seconds, memory in bytes.

    `job` is the specification; `inputs` and `output` map paths of manifests to their digests;
    `cpu_seconds` are those of all processes of the job, `peak_memory` that of the largest of them;
    with `accepted` specifications, `job` is the last of these, and not the one that ran; `wheels`
    are digests of the builds of `packages`; `processes` is None where one did all.
    """

    job: Mapping[str, Any]
    inputs: Mapping[str, str]
    output: Mapping[str, str]
    packages: Mapping[str, str | None]
    git: Git | None
    machine: Machine
    device: Device
    started: str
    seconds: float
    cpu_seconds: float
    peak_memory: int
    threads: int | None
    tokens: int | None
    accepted: tuple[Acceptance, ...] = ()
    wheels: Mapping[str, str] = field(default_factory=dict)
    processes: int | None = None
    version: int = VERSION

    def text(self) -> str:
        """The record as it stands on disk, with a digest of itself."""
        return sealed(asdict(self))

    @property
    def by(self) -> str:
        """By how many processes it was made, in words."""
        return f"{self.processes} processes" if self.processes else "1 process"

    @property
    def identity(self) -> str:
        """Hex digest of all that the result depends on."""
        return identity(self.job, self._read)

    @property
    def carried(self) -> str:
        """The identity that the result was made with, which its pictures carry."""
        return self.accepted[0].identity if self.accepted else self.made_with

    @property
    def made_with(self) -> str:
        """That of its specification, as it was taken when the record was first written."""
        held = self.definitions
        return self.identity if held is None else former(self.job, held, self._read)

    @property
    def definitions(self) -> Definitions | None:
        """What its code is, where the record was of version 2 and so holds that."""
        return self.job.get(DEFINITIONS)

    @property
    def _read(self) -> Mapping[str, list[str]]:
        labels: Mapping[str, list[str]] = self.job["inputs"]
        return {key: [self.inputs[path] for path in paths] for key, paths in labels.items()}


def identity(job: Mapping[str, Any], digests: Mapping[str, list[str]]) -> str:
    """Hex digest of a specification but for where its code stands, and of the manifests that the
    job reads, by their digests under its labels."""
    return hashlib.sha256(canonical([essence(job), digests]).encode()).hexdigest()


def former(
    job: Mapping[str, Any], definitions: Definitions, digests: Mapping[str, list[str]]
) -> str:
    """The identity as it was taken when records had version 2: with the definitions for the digest
    over them."""
    return identity({**job, "code": definitions}, digests)


def essence(job: Mapping[str, Any] | None) -> dict[str, Any]:
    """What in a specification shapes the result: all but where the code stands, so that a moved
    module changes nothing."""
    left_out = (*PLACES, DEFINITIONS)
    return {key: value for key, value in (job or {}).items() if key not in left_out}


def as_now(content: dict[str, Any]) -> dict[str, Any]:
    """A record's content as it is written now, where it is of the version before; it goes on to
    hold the definitions, by which its result has the identity that pictures of it carry."""
    if content.get("version") != LISTING:
        return content
    job, held = content["job"], content["job"]["code"]
    now = {**job, "code": over(held), DEFINITIONS: held}
    return {**content, "version": VERSION, "job": now}


def sealed(content: Mapping[str, Any]) -> str:
    """A record's content as text that holds its own digest."""
    text = json.dumps({**content, SEAL: ""}, sort_keys=True, indent=1) + "\n"
    return text.replace(_seal(""), _seal(hashlib.sha256(text.encode()).hexdigest()), 1)


def is_sealed(text: str, digest: object) -> bool:
    """Whether a record's text is the one that was written, by the digest in it."""
    before = text.replace(_seal(str(digest)), _seal(""), 1)
    return hashlib.sha256(before.encode()).hexdigest() == digest


def _seal(digest: str) -> str:
    return f'\n "{SEAL}": "{digest}"'


def read(path: Path, text: str | None = None) -> Record:
    """Read a record, or take its `text` from an archive; `Problem` when it is missing, none, or of
    another version."""
    mend = f"remove {path} and build again"
    try:
        text = path.read_text(encoding="utf-8") if text is None else text
        content = as_now(parsed(text))
        version = content["version"]
    except FileNotFoundError:
        result = beside(path, MANIFEST)
        raise Problem(f"{path} is missing; build it with snakemake {result}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(f"{path} is no record ({error}); {mend}") from None
    if version != VERSION:
        raise Problem(f"{path} has version {version}, this code reads {VERSION}; {mend}")
    if not is_sealed(text, content.pop(SEAL, None)):
        raise Problem(f"{path} is not as it was written (its digest differs); {mend}")
    try:
        return _reader().validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise Problem(f"{path} is no record ({place}: {first['msg']}); {mend}") from None


@cache
def _reader() -> TypeAdapter[Record]:
    # To build it takes longer than to read a hundred records with it.
    return TypeAdapter(Record)


def describe(
    job: Mapping[str, Any],
    inputs: Mapping[str, list[Manifest]],
    output: Manifest,
    commit: Git | None,
    started: datetime.datetime,
    seconds: float,
) -> Record:
    """The record of a result that was made in this process and its children; `commit` is that of
    the code when the job took it."""
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in (own, children))
    unit = 1 if sys.platform == "darwin" else 1024
    return Record(
        job={key: value for key, value in job.items() if key != DEFINITIONS},
        inputs={str(m.path): m.digest() for group in inputs.values() for m in group},
        output={str(output.path): output.digest()},
        packages={name: installed(name) for name in job["environment"]},
        git=commit,
        machine=machine.this(),
        device=machine.device(),
        started=started.isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        cpu_seconds=round(cpu, 3),
        peak_memory=max(own.ru_maxrss, children.ru_maxrss) * unit,
        threads=int(os.environ.get("OMP_NUM_THREADS", 0)) or os.cpu_count(),
        tokens=output.facts.get("tokens_processed"),
        wheels={name: found for name in job["environment"] if (found := wheel(name))},
        processes=output.facts.get("processes"),
    )
