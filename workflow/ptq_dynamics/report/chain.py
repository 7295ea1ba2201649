"""What the page was made from, by the records of results: every job with its inputs, once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import RECORD, beside
from ptq_dynamics.provenance.archive import Result, label


@dataclass
class Chain:
    """Results by the path of their manifest, those that others are made from first, and the paths
    of those of which there is no record."""

    results: dict[str, Result] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)


def follow(tops: Iterable[Manifest]) -> Chain:
    """All that some results were made from, with these."""
    chain = Chain()
    waiting = [(str(top.path), top.digest(), False) for top in tops]
    waiting.reverse()
    while waiting:
        path, digest, done = waiting.pop()
        if path in chain.results or path in chain.missing:
            continue
        result = _result(path, digest)
        if result is None:
            chain.missing[path] = None
        elif done:
            chain.results[path] = result
        else:
            inputs = sorted(result.record.inputs.items(), reverse=True)
            waiting += [(path, digest, True), *((*each, False) for each in inputs)]
    return chain


def _result(path: str, digest: str) -> Result | None:
    """The result of just this manifest, if its record is there and whole."""
    place = beside(path, RECORD)
    try:
        account = record.read(place)
    except Problem:
        return None
    return Result(path, account, place) if account.output.get(path) == digest else None


def content(chain: Chain) -> dict[str, Any]:
    """The chain as data of the page: jobs, whose inputs, commit and machine are places in lists."""
    places = {path: place for place, path in enumerate([*chain.results, *chain.missing])}
    commits, machines = Listed(), Listed()
    jobs = [_job(each, places, commits, machines) for each in chain.results.values()]
    unknown = [{"label": path, "stage": "no record", "manifest": path} for path in chain.missing]
    return {"jobs": [*jobs, *unknown], "commits": commits.items, "machines": machines.items}


class Listed:
    """Different values, each once, in the order in which they came."""

    def __init__(self) -> None:
        self.items = list[Mapping[str, Any]]()

    def place(self, item: Mapping[str, Any]) -> int:
        """Where a value stands, at the end if it was not there."""
        if item not in self.items:
            self.items.append(item)
        return self.items.index(item)


def _job(
    result: Result, places: Mapping[str, int], commits: Listed, machines: Listed
) -> dict[str, Any]:
    account = result.record
    git, device = account.git, account.device
    commit = {"commit": git and git.commit, "changed": bool(git and git.dirty)}
    machine = vars(account.machine) | {"device": device.kind, "accelerator": device.name}
    return {
        "label": label(account.job),
        "stage": account.job["stage"],
        "manifest": result.path,
        "digest": result.digest,
        "identity": account.identity,
        "commit": commits.place(commit),
        "machine": machines.place(machine),
        "started": account.started,
        "seconds": account.seconds,
        "tokens": account.tokens,
        "processes": account.by,
        "accepted": [each.reason for each in account.accepted],
        "inputs": sorted(places[path] for path in account.inputs),
    }


def tops(inputs: Mapping[str, list[Manifest]]) -> Iterable[Manifest]:
    """The results that a reader begins with: figures, claims and tables."""
    for key, group in inputs.items():
        if key.startswith("figure ") or key in ("claims", "tables"):
            yield from group
