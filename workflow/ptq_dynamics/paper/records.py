"""The records of the paper's inputs and of all they were made from.

Records hold dates, commits and machines. What a job depends on are digests, of which these are no
part: so a result that was made anew, to the same bytes, leaves the paper as it is.
"""

import datetime
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import canonical
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import RECORD, beside
from ptq_dynamics.engine.record import Record
from ptq_dynamics.figures.settings import rounded


def told(inputs: Iterable[Manifest]) -> dict[str, Any]:
    """What the text is told of records: each by the path of its manifest, how many are unknown, and
    the versions of all libraries; `Problem` where one is damaged, or that of an input missing."""
    first = {str(each.path): each.digest() for each in inputs}
    records, unknown, waiting = dict[str, Record](), set[str](), dict(first)
    while waiting:
        path, digest = waiting.popitem()
        place, is_first = Path(beside(path, RECORD)), path in first
        # Of what was imported, not all records need to be here.
        if not is_first and not place.exists():
            unknown.add(path)
        elif path not in records:
            found = record.read(place)
            if is_first or manifest.read(Path(path)).digest() == digest:
                records[path] = found
                waiting |= found.inputs
            else:
                unknown.add(path)
    pairs = {pair for each in records.values() for pair in each.packages.items()}
    names = sorted({name for name, version in pairs if version}, key=str.casefold)
    packages = {name: sorted(v for other, v in pairs if v and other == name) for name in names}
    pythons = sorted({each.machine.python for each in records.values()})
    return {
        "records": {path: _plain(records[path]) for path in sorted(records)},
        "unknown": len(unknown),
        "trained": rounded(sum(each.tokens or 0 for each in records.values())),
        "packages": packages,
        "environment": hashlib.sha256(canonical([packages, pythons]).encode()).hexdigest(),
    }


def kind(found: Record) -> str:
    """The kind of job that a result is of: its stage, and of figures one for all layouts."""
    stage = str(found.job["stage"])
    return "figures" if stage.startswith("figures.") else stage


def gpus(found: Record) -> int:
    """How many accelerators a job used."""
    return 0 if found.device.kind == "cpu" else found.device.count or 1


def _plain(found: Record) -> dict[str, Any]:
    machine, device = found.machine, found.device
    began = datetime.datetime.fromisoformat(found.started).astimezone(datetime.UTC)
    return {
        "kind": kind(found),
        "identity": found.identity,
        "done": f"{began + datetime.timedelta(seconds=found.seconds):%Y-%m-%d %H:%M:%S}",
        "commit": None if found.git is None else found.git.commit + "+" * found.git.dirty,
        "accepted": bool(found.accepted),
        "tokens": found.tokens or 0,
        "seconds": found.seconds,
        "cpu_seconds": found.cpu_seconds,
        "gpus": gpus(found),
        "peak_memory": found.peak_memory,
        "machine": [
            machine.processor or machine.architecture,
            f"{machine.system} {machine.architecture}, Python {machine.python}",
            f"{machine.cores or 'unknown'} cores, {machine.memory / 2**30:.0f} GiB",
            device.kind if device.name is None else f"{device.count or 1} × {device.name}",
        ],
    }
