"""Jobs, and the specification of each: all that its result depends on, beside its inputs' bytes.

Planning writes a specification beside its result; it is an ordinary input of the job's rule. It is
written only where it differs, with a time later than the result's, so that Snakemake runs the job.
"""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.engine import code, freshness
from ptq_dynamics.engine.libraries import versions
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.record import content


@dataclass(frozen=True)
class Job:
    """One job: the module of its stage, its name and folder (and the stem of its files, where it
    shares the folder), the manifests that it reads by label, its settings, the files that people
    want of it, and the distributions whose files it reads."""

    stage: str
    name: str
    folder: str
    inputs: Mapping[str, list[str]]
    settings: Any
    stem: str | None = None
    files: tuple[str, ...] = field(default=())
    distributions: tuple[str, ...] = field(default=())

    @cached_property
    def paths(self) -> Paths:
        """Where the parts of the job's result lie."""
        return Paths(Path(self.folder), self.stem)

    @cached_property
    def manifest(self) -> str:
        """Path of the job's manifest."""
        return str(self.paths.manifest)

    @property
    def outputs(self) -> list[str]:
        """Paths of the files that people want, or else of the manifest."""
        return [f"{self.folder}/{name}" for name in self.files] or [self.manifest]

    @property
    def needs(self) -> list[str]:
        """Paths of all manifests that the job reads."""
        return list(chain.from_iterable(self.inputs.values()))

    @cached_property
    def code(self) -> code.Code:
        """The code and the libraries that the job's result depends on."""
        return code.planned(tuple(code.roots(self.stage, self.settings)))

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The specification, as plain data."""
        kind: Any = type(self.settings)
        settings = _adapter(kind).dump_python(self.settings, mode="json")
        return {
            "stage": self.stage,
            "name": self.name,
            "folder": self.folder,
            "stem": self.stem,
            "inputs": self.inputs,
            "settings": settings,
            "code": self.code.modules,
            "libraries": versions(self.code.libraries, self.distributions),
        }

    @property
    def text(self) -> str:
        """The specification as it stands on disk."""
        return json.dumps(self.spec, sort_keys=True, indent=1, allow_nan=False) + "\n"


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def settle(job: Job, *, deep: bool = False) -> bool:
    """Have the times of a job's files say whether its result is up to date, as far as its inputs
    are; whether it is.

    An up-to-date result gets its manifest back where that is missing, with a time after those of
    its inputs; so adopted and copied results, undone edits and a lost .snakemake run nothing. The
    specification of any other is newer than its manifest from now on. With `deep`, the bytes of
    all files are compared; a damaged result loses its record.
    """
    paths, text = job.paths, job.text
    reasons = freshness.stale(job.spec, paths, deep=deep)
    before = _time(paths.manifest)
    with suppress(FileNotFoundError):
        same = paths.spec.read_text(encoding="utf-8") == text
        if reasons and same and _time(paths.spec) > before:
            return False
    paths.folder.mkdir(parents=True, exist_ok=True)
    if reasons:
        if deep and paths.record.exists() and reasons[0].startswith(freshness.DAMAGED):
            paths.record.unlink()
        write_atomically(paths.spec, text)
        now = time.time_ns()
        os.utime(paths.spec, ns=(now, max(now, before + 1)))
        return False
    if not paths.spec.exists() or paths.spec.read_text(encoding="utf-8") != text:
        write_atomically(paths.spec, text)
        os.utime(paths.spec, ns=(before, before))
    restore_manifest(paths)
    before = _time(paths.manifest)
    latest = max(map(_time, (*map(Path, job.needs), paths.spec)))
    if latest > before:
        os.utime(paths.manifest, ns=(latest, latest))
    return True


def restore_manifest(paths: Paths) -> None:
    """Write the manifest of a result again as its record has it, unless it stands there so."""
    found = content(paths.record)
    text = Manifest(paths.manifest, found["files"], found["facts"]).text()
    with suppress(OSError):
        if paths.manifest.read_text(encoding="utf-8") == text:
            return
    write_atomically(paths.manifest, text)


def _time(path: Path) -> int:
    """When a file was last written, in ns; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
