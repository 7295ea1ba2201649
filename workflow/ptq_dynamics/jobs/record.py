"""Records: who, what, when and where of one result, written beside its manifest."""

import contextlib
import datetime
import hashlib
import json
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ptq_dynamics.base.content import canonical, parsed
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.jobs.checkout import PACKAGE, ROOT, SOURCES
from ptq_dynamics.jobs.fingerprint.code import DEFINITIONS, over
from ptq_dynamics.jobs.fingerprint.versions import installed, wheel
from ptq_dynamics.jobs.manifest import Manifest
from ptq_dynamics.jobs.paths import MANIFEST, beside
from ptq_dynamics.jobs.team import Processes, Team

VERSION = 3
# Held the definitions of its code, and not the digest over them.
LISTING = 2
# Of the text of a record, where this is empty.
SEAL = "digest"
# Of x86 and ARM, the widest first, as Linux calls them.
VECTORS = ("avx512f", "avx2", "avx", "sve", "asimd")
CODE = (".py", ".smk", "Snakefile", ".yaml")
# Keys of a specification that say where code stands; what it is, its fingerprint says.
PLACES = ("stage", "modules")
# What git calls the commit of a repository without any.
UNBORN = "(initial)"


@dataclass(frozen=True)
class Git:
    """The commit of the code's repository, and whether the code differs from it."""

    commit: str
    dirty: bool


@dataclass(frozen=True)
class Machine:
    """Kind of machine, without its name; memory in bytes; the widest vector instructions, on which
    the order of sums depends, and so the last bits of results."""

    system: str
    architecture: str
    processor: str
    cores: int | None
    memory: int
    python: str
    vector: str | None = None


@dataclass(frozen=True)
class Device:
    """The accelerator that the job used, or the CPU; peak memory in bytes."""

    kind: str
    name: str | None = None
    count: int | None = None
    peak_memory: int | None = None


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
    processes: Processes | None = None
    version: int = VERSION

    def text(self) -> str:
        """The record as it stands on disk, with a digest of itself."""
        return sealed(asdict(self))

    @property
    def by(self) -> str:
        """By how many processes it was made, in words: `1 process, then 2 processes`."""
        teams = self.processes.teams if self.processes else (Team(),)
        return ", then ".join(map(str, teams))

    @property
    def identity(self) -> str:
        """Hex digest of all that the result depends on, which its pictures carry."""
        labels: Mapping[str, list[str]] = self.job["inputs"]
        digests = {key: [self.inputs[path] for path in paths] for key, paths in labels.items()}
        return identity(self.job, digests)


def identity(job: Mapping[str, Any], digests: Mapping[str, list[str]]) -> str:
    """Hex digest of a specification but for where its code stands, and of the manifests that the
    job reads, by their digests under its labels."""
    return hashlib.sha256(canonical([essence(job), digests]).encode()).hexdigest()


def essence(job: Mapping[str, Any] | None) -> dict[str, Any]:
    """What in a specification shapes the result: all but where the code stands, so that a moved
    module changes nothing."""
    left_out = (*PLACES, DEFINITIONS)
    return {key: value for key, value in (job or {}).items() if key not in left_out}


def as_now(content: dict[str, Any]) -> dict[str, Any]:
    """A record's content as it is written now, where it is of the version before."""
    if content.get("version") != LISTING:
        return content
    job = content["job"]
    return {**content, "version": VERSION, "job": {**job, "code": over(job["code"])}}


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
    computed: Device | None = None,
    processes: Processes | None = None,
) -> Record:
    """The record of a result that was made in this process and its children, on the device
    `computed`, or that of this process; `commit` is that of the code when the job took it."""
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in (own, children))
    unit = 1 if sys.platform == "darwin" else 1024
    return Record(
        job={key: value for key, value in job.items() if key != DEFINITIONS},
        inputs={str(m.path): m.digest() for group in inputs.values() for m in group},
        output={str(output.path): output.digest()},
        packages={name: installed(name) for name in job["environment"]},
        git=commit,
        machine=machine(),
        device=computed or device(),
        started=started.isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        cpu_seconds=round(cpu, 3),
        peak_memory=max(own.ru_maxrss, children.ru_maxrss) * unit,
        threads=int(os.environ.get("OMP_NUM_THREADS", 0)) or os.cpu_count(),
        tokens=output.facts.get("tokens_processed"),
        wheels={name: found for name in job["environment"] if (found := wheel(name))},
        processes=processes,
    )


def git(root: Path = ROOT) -> Git | None:
    """State of the repository that the code lies in; None where no repository holds it.

    Dirty is a change of any file it holds, and code or configuration that it does not hold.
    """
    if not holds_code(root):
        return None
    options = ["--porcelain=v2", "--branch", "-z", "-uall", "--no-renames"]
    try:
        lines = _git(root, "status", *options).split("\0")
    except (OSError, subprocess.CalledProcessError):
        return None
    commit = next(line.split()[-1] for line in lines if line.startswith("# branch.oid "))
    changes = [line for line in lines if line and not line.startswith("#")]
    dirty = any(line[0] != "?" or line.endswith(CODE) for line in changes)
    return None if commit == UNBORN else Git(commit, dirty)


def refresh(root: Path = ROOT) -> None:
    """Let git see that files are as they were: of a fresh clone, it would read them all again for
    every job. Where it may not write that down, it does."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        if holds_code(root):
            _git(root, "update-index", "-q", "--refresh")


@cache
def holds_code(root: Path = ROOT) -> bool:
    """Whether a repository holds the code, which may lie in a folder that another one ignores."""
    try:
        _git(root, "ls-files", "--error-unmatch", f"{SOURCES.name}/{PACKAGE}/__init__.py")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def machine() -> Machine:
    """The machine that this process runs on."""
    flags = " ".join(_of_processor("flags")[:1] or _of_processor("Features")[:1]).split()
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        processor=(_of_processor("model name") or [platform.processor()])[0],
        cores=os.cpu_count(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=platform.python_version(),
        vector=next((name for name in VECTORS if name in flags), None),
    )


def _of_processor(key: str) -> list[str]:
    """What Linux says of every core under a key."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return []
    return re.findall(rf"^{key}\s*: *(.*?) *$", text, flags=re.M)


def device() -> Device:
    """The device that this process used."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return Device("cpu")
    return Device(
        "cuda",
        torch.cuda.get_device_name(),
        torch.cuda.device_count(),
        torch.cuda.max_memory_allocated(),
    )
