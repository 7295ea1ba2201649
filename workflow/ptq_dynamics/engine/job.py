"""Jobs and their specifications, and whether a result is up to date.

A specification holds everything that a result depends on, except the bytes of the inputs. Planning
writes it beside the result, and removes the manifest of an outdated one; Snakemake reads both."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard

from pydantic_core import to_jsonable_python

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import code, manifest, record
from ptq_dynamics.engine.machine import versions
from ptq_dynamics.engine.paths import Paths, Spec

MISSING, DAMAGED = "missing", "damaged"
SEED = re.compile(r" seed (\d+)")  # in the label of an input


@dataclass(frozen=True)
class Job:
    """One job."""

    stage: str  # its module, below the package
    name: str
    folder: str
    inputs: Mapping[str, list[str]]  # paths of manifests by label
    settings: Any  # of the type that the `run` of the stage names
    stem: str | None = None  # of its files, in a shared folder
    distributions: tuple[str, ...] = ()  # whose files it reads
    rule: str = ""  # of Snakemake
    wildcards: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def paths(self) -> Paths:
        """Paths of the job's result."""
        return Paths(Path(self.folder), self.stem)

    @cached_property
    def manifest(self) -> str:
        """Path of the job's manifest."""
        return str(self.paths.manifest)

    @property
    def needs(self) -> list[str]:
        """Paths of all manifests that the job reads."""
        return list(chain.from_iterable(self.inputs.values()))

    @cached_property
    def code(self) -> code.Code:
        """The code and libraries that the result depends on."""
        return code.planned(code.roots(self.stage, self.settings))

    @cached_property
    def spec(self) -> Spec:
        """The specification, as plain data."""
        return {
            "stage": self.stage,
            "name": self.name,
            "folder": self.folder,
            "stem": self.stem,
            "inputs": self.inputs,
            "settings": to_jsonable_python(self.settings),
            "code": self.code.modules,
            "libraries": versions(self.code.libraries, self.distributions),
        }

    @property
    def text(self) -> str:
        """The specification, as the file holds it."""
        return json.dumps(self.spec, sort_keys=True, indent=1, allow_nan=False) + "\n"


def stale(spec: Spec, paths: Paths, *, deep: bool = False) -> list[str]:
    """Return the reasons why a result is missing, outdated or damaged, the root cause first; none
    if it is up to date. `deep` compares the bytes of its files, not only their sizes."""
    try:
        known = record.read(paths.record)
    except Problem as problem:
        return [f"{DAMAGED}: {problem}" if paths.record.exists() else MISSING]
    reasons = list(differences(known.job, spec))
    for path in (path for group in spec["inputs"].values() for path in group):
        if known.inputs.get(path, "") != (now := digest_of(path)):
            reasons.append(f"its input {path} is {'other' if now else 'missing'}")
    # `deep` also finds damage in a result that is outdated for another reason.
    result = known.manifest(paths.manifest)
    if (deep or not reasons) and (harm := result.harm(deep)):
        return [f"{DAMAGED}: {harm}", *reasons]
    return reasons


def digest_of(path: str) -> str | None:
    """Return the digest of a manifest, or of the one in the record beside it; None without both."""
    with suppress(OSError):
        return sha256(Path(path))
    with suppress(Problem):
        return manifest.read(Path(path)).digest()
    return None


def differences(before: object, now: object, place: str = "") -> Iterator[str]:
    """Yield the differences of two specifications, such as `method.damping 0.05 → 0.01`."""
    if _are_entries(before) and _are_entries(now) and len(before) == len(now):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        if type(before) is not type(now) or before != now:
            is_code = place.startswith("code.")
            what = "changed" if is_code else f"{_shown(before)} → {_shown(now)}"
            yield f"{place.removeprefix('code.').removeprefix('libraries.')} {what}"
    elif place == "inputs":
        yield from dict.fromkeys(_differing_inputs(before, now))
    else:
        for key in dict.fromkeys((*before, *now)):
            name = key if not place or place == "settings" else f"{place}.{key}"
            yield from differences(before.get(key), now.get(key), name)


def _differing_inputs(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    """Yield the differences of inputs by label, in one line for all seeds of a label."""
    seeds = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for by_label, labels in zip(seeds, (before, now), strict=True):
        for label in labels:
            by_label[SEED.sub("", label)] += SEED.findall(label)
    for name in dict.fromkeys(chain(*seeds)):
        old, new = (by_label.get(name) for by_label in seeds)
        if old is None or new is None:
            yield f"input {name} is {'new' if old is None else 'no longer read'}"
        elif old != new:
            yield f"seeds {', '.join(old)} → {', '.join(new)}"
    for label in before.keys() & now.keys():
        yield from differences(before[label], now[label], label)


def _are_entries(value: object) -> TypeGuard[list[Mapping[str, object]]]:
    return isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value)


def _shown(value: object) -> str:
    text = "none" if value is None else str(value)
    text = f"{len(value)} entries" if _are_entries(value) else text
    return text if len(text) <= 60 else f"{text[:57]}..."


def settle(job: Job, *, waits: bool = False, deep: bool = False) -> bool:
    """Set the files of a job so that Snakemake runs it if its result or an input (`waits`) is
    outdated; return whether it is up to date. Then the manifest becomes newer than the inputs.
    Otherwise the manifest is removed, and with `deep` the record of a damaged result, too."""
    paths, before = job.paths, manifest.written(job.paths.manifest)
    reasons = stale(job.spec, paths, deep=deep)
    paths.folder.mkdir(parents=True, exist_ok=True)
    _write_if_other(paths.spec, job.text)
    if reasons or waits:
        if deep and reasons and paths.record.exists() and reasons[0].startswith(DAMAGED):
            paths.record.unlink()
        # Another build may have published it meanwhile.
        if manifest.written(paths.manifest) == before:
            paths.manifest.unlink(missing_ok=True)
        return False
    restore_manifest(paths)
    latest = max(manifest.written(path) for path in (*map(Path, job.needs), paths.spec))
    if latest > manifest.written(paths.manifest):
        os.utime(paths.manifest, ns=(latest, latest))
    return True


def restore_manifest(paths: Paths) -> None:
    """Write the manifest of a result from its record if it is missing or different."""
    _write_if_other(paths.manifest, record.read(paths.record).manifest(paths.manifest).text())


def _write_if_other(path: Path, text: str) -> None:
    with suppress(OSError, ValueError):
        if path.read_text(encoding="utf-8") == text:
            return
    # Another build may write the same file at the same time.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
