"""The chain from a result down to the text and the checkpoints that it comes from."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import RECORD, beside
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.site import Site
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import (
    DEGRADATION,
    FULL_PRECISION,
    INCREASE,
    QUANTIZATION_ERROR,
)
from ptq_dynamics.provenance.archive import Archive, Result, identity_in, label, manifest_of
from ptq_dynamics.provenance.genuine import Checked, check, described

# Metrics that compare with full precision.
PAIRED = {INCREASE, QUANTIZATION_ERROR, DEGRADATION}
ROW = re.compile(r"(.+\.csv):(\d+)")


@dataclass(frozen=True)
class Step:
    """One job of a chain: what it is, the manifest of its result, its specification, the steps
    that it reads, and, where it has run, the record of that."""

    label: str
    manifest: str
    job: Mapping[str, Any]
    inputs: tuple[str, ...]
    result: Result | None = None

    def content(self) -> dict[str, Any]:
        """As plain data: with the command that makes the result again."""
        account = self.result.record if self.result else None
        record = beside(self.manifest, RECORD)
        ran = (
            {
                "command": f"python -m ptq_dynamics.engine.run --job {record}",
                "git": account.git and vars(account.git),
                "machine": vars(account.machine),
                "device": vars(account.device),
                "packages": dict(account.packages),
                "wheels": dict(account.wheels),
                "accepted": [vars(each) for each in account.accepted],
                "started": account.started,
                "seconds": account.seconds,
                "threads": account.threads,
                "processes": account.processes,
                "output": dict(account.output),
            }
            if account
            else {}
        )
        return {
            "job": self.label,
            "manifest": self.manifest,
            "inputs": list(self.inputs),
            "settings": self.job["settings"],
            "code": self.job["code"],
            **ran,
        }


@dataclass(frozen=True)
class Chain:
    """The steps below one result, by the paths of their manifests; `missing` are inputs of which
    there is no record, or only that of another result in their place; `checked` is what is known
    of the bytes of the file that was asked for."""

    top: str
    steps: Mapping[str, Step]
    missing: tuple[str, ...] = ()
    checked: Checked | None = None


def trace(text: str, archive: Archive) -> Chain:
    """The chain of what a path names: a file of a result, a picture from elsewhere, or one row of
    a table of measurements, as `measurements.csv:ROW` (the first row below the head is 1).

    Raises `Problem` where nothing is known of it.
    """
    if not Path("config/config.yaml").is_file():
        raise Problem("no records are here; run this in the folder of the checkout")
    row = ROW.fullmatch(text)
    path = Path(row[1] if row else text)
    if not _is_file(path):
        raise Problem(f"{path} is no file; name a file of a result, or a picture of this project")
    top = _result(path, archive)
    only = _read_by(path, int(row[2]), top) if row else None
    return replace(_chain(top, archive, only), checked=check(path, top))


def _result(path: Path, archive: Archive) -> Result:
    owner = manifest_of(path)
    if owner is not None and _differs(path, owner):
        # Another picture may lie in its place, and is known by what it carries.
        if identity_in(path) is None:
            raise Problem(f"{path} has other bytes than were published; make figures renews it")
        owner = None
    if owner is not None:
        digest = owner.digest()
        found = archive.maker(str(owner.path), digest) or archive.maker(_within(owner.path), digest)
        if found is None:
            record = str(beside(owner.path, RECORD))
            harm = [line for line in archive.read[1] if line.startswith(record)]
            raise Problem(
                harm[0]
                if harm
                else f"{path} is of {owner.path}, which has no record; build it again"
            )
        return found
    carried = identity_in(path)
    if (own := described(path)) and (carried is None or carried[1] in own.identities):
        return own
    if carried is None:
        raise Problem(
            f"{path} is of no result here, and carries no identity of one; name a file below "
            "results or figures, or a picture that make figures drew"
        )
    scale, identity = carried
    result = archive.by_identity(identity)
    if result is None:
        raise Problem(
            f"{path} is of {scale} and carries identity {identity[:16]}, of which there is no "
            "whole record here; look in the checkout where it was drawn"
        )
    return result


def _within(path: Path) -> str:
    """A path as records have it: from the folder of the project on."""
    absolute = path.resolve()
    here = Path().resolve()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(path)


def _read_by(path: Path, number: int, top: Result) -> set[str]:
    """The inputs of a table that one row of it comes from."""
    try:
        table = measurements.read(path)[list(measurements.COLUMNS)]
    except (ValueError, KeyError):
        raise Problem(f"{path} is no table of measurements, of which rows are traced") from None
    if not 1 <= number <= len(table):
        raise Problem(f"{path} has rows 1 to {len(table)}; there is no row {number}")
    row = table.iloc[number - 1]
    quantizers = [row.quantizer, *([FULL_PRECISION] if row.metric in PAIRED else [])]
    # After the kind of raw result, as in `Series.label`.
    ends = tuple(f" {row.trajectory} seed {row.seed} {quantizer}" for quantizer in quantizers)
    labels: Mapping[str, list[str]] = top.record.job["inputs"]
    return {path for key, group in labels.items() for path in group if key.endswith(ends)}


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _differs(path: Path, owner: Manifest) -> bool:
    """Whether a file of a result is not as its manifest has it."""
    entry = owner.files.get(path.relative_to(owner.folder).as_posix())
    return entry is not None and bool(sha256(path) != entry["sha256"])


def _chain(top: Result, archive: Archive, only: set[str] | None) -> Chain:
    steps, missing, waiting = dict[str, Step](), set[str](), [(top.path, top.digest)]
    while waiting:
        path, digest = waiting.pop()
        if path in steps:
            continue
        result = archive.maker(path, digest)
        if result is None:
            missing.add(path)
            continue
        inputs = result.record.inputs
        read = tuple(p for p in inputs if path != top.path or only is None or p in only)
        steps[path] = Step(result.label, path, result.record.job, read, result)
        waiting += [(each, inputs[each]) for each in read]
    return Chain(top.path, steps, tuple(sorted(missing)))


def planned(site: Site, top: Job) -> Chain:
    """The chain of a job before anything is built."""
    steps = {
        job.manifest: Step(label(job.specified()), job.manifest, job.specified(), tuple(job.needs))
        for job in site.needed([top])
    }
    return Chain(top.manifest, steps)


def lines(chain: Chain) -> Iterator[tuple[int, Step, bool]]:
    """Depth and step of every line of the tree below the top, and whether its inputs were told
    above already."""
    told = set[str]()

    def below(path: str, depth: int) -> Iterator[tuple[int, Step, bool]]:
        step = chain.steps.get(path)
        if step is None:
            return
        again = path in told and bool(step.inputs)
        told.add(path)
        yield depth, step, again
        if not again:
            for each in dict.fromkeys(step.inputs):
                yield from below(each, depth + 1)

    yield from below(chain.top, 0)
