"""How far the builds in a folder have come, from what they and their jobs leave there.

So it does not matter which machine runs the jobs: a build notes what becomes of them in its
journal, a job that is at work touches its lease every few seconds, and its log ends with how far it
is.
"""

import datetime
import json
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from ptq_dynamics.engine.builds import known
from ptq_dynamics.engine.context import BEGINS
from ptq_dynamics.engine.journal import JOURNAL, Reader
from ptq_dynamics.engine.lease import SECONDS, owner_of
from ptq_dynamics.engine.paths import MANIFEST, Paths
from ptq_dynamics.engine.telling import UNKNOWN, failure, last_line

# What progress lines of jobs say.
STEPS = re.compile(r"step (\d+)/(\d+)|([\d,]+) of ([\d,]+)")
LOSS = re.compile(r"loss ([\d.]+)")
RATE = re.compile(r"([\d,]+) tokens/s")
LEFT = re.compile(r"([\d,]+) s to go")


@dataclass(frozen=True)
class Reading:
    """What a job's last line says: how much of its work is done, its training loss in nats a token,
    its tokens a second, the seconds it needs still; or else the line, as `text`."""

    share: str = ""
    loss: float | None = None
    rate: float | None = None
    left: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Running:
    """A job at work: for how many seconds, and where."""

    label: str
    seconds: float
    reading: Reading
    host: str = ""


@dataclass(frozen=True)
class Failed:
    """A job that failed: why, as its log ends, and where that is."""

    label: str
    reason: str
    log: str


@dataclass(frozen=True)
class View:
    """A build at a moment: numbers of jobs by stage and state; for how long it has been at work,
    and for how long it may still be, in seconds, where that can be told."""

    counts: Mapping[str, Counter[str]]
    running: list[Running]
    failed: list[Failed]
    seconds: float
    left: float | None

    @property
    def total(self) -> Counter[str]:
        """Numbers of jobs by state: queued, running, done, failed."""
        return sum(self.counts.values(), Counter[str]())


@dataclass
class Build:
    """One build, by its claim; `follow` reads on what its journal says."""

    claim: Path
    _content: dict[str, Any]
    _reader: Reader
    _paths: dict[str, Paths | None]
    _began: dict[str, float] = field(default_factory=dict)
    _done: dict[str, float | None] = field(default_factory=dict)
    _failed: dict[str, Failed] = field(default_factory=dict)
    _last: float = 0.0
    _ended: bool | None = None

    @classmethod
    def of(cls, claim: Path) -> "Build":
        """The build of a claim."""
        content = json.loads(claim.read_text(encoding="utf-8"))
        paths = {job: _paths(job) for job in content["jobs"]}
        return cls(claim, content, Reader(claim.with_suffix(JOURNAL)), paths)

    @property
    def pid(self) -> int:
        """The build's process."""
        return int(self._content["pid"])

    @property
    def is_at_work(self) -> bool:
        """Whether its process is there."""
        return (self.claim, True) in known(self.claim.parent)

    @property
    def has_ended(self) -> bool:
        """Whether the build came to its end, and was not killed."""
        return self._ended is not None

    @property
    def is_well(self) -> bool:
        """Whether it has ended with all its jobs done."""
        return self._ended is True

    def follow(self) -> None:
        """Read what has happened since the last time."""
        for event in self._reader.new():
            job, self._last = event.manifest, event.at
            match event.kind:
                case "began":
                    self._began[job] = event.at
                    self._failed.pop(job, None)
                case "done":
                    self._done[job] = event.seconds
                    self._failed.pop(job, None)
                case "failed":
                    self._failed[job] = self._why(job)
                case "end":
                    self._ended = bool(event.seconds)

    def view(self, *, at_work: bool = True) -> View:
        """How far it has come, as of what was read, and of the leases and logs of its jobs now; of
        a build that is not `at_work`, jobs may go on."""
        jobs: Mapping[str, str] = self._content["jobs"]
        running = dict(self._at_work(at_work and self._content["local"]))
        counts = defaultdict[str, Counter[str]](Counter)
        for job, label in jobs.items():
            counts[_stage(label)][self._state(job, running)] += 1
        left = self._left(running) if at_work else None
        seconds = (time.time() if at_work else self._last) - self._content["started"]
        failed = list(self._failed.values())
        return View(counts, list(running.values()), failed, max(0.0, seconds), left)

    def _state(self, job: str, running: Mapping[str, Running]) -> str:
        if job in self._failed or job in self._done:
            return "failed" if job in self._failed else "done"
        return "running" if job in running else "queued"

    def _at_work(self, all_that_began: bool) -> Iterator[tuple[str, Running]]:
        """The jobs that are at work, by their manifests: all that began, or, where those may wait
        in a queue or be gone, the ones with a lease that is alive."""
        now = time.time()
        for job, label in self._content["jobs"].items():
            if job in self._done or job in self._failed:
                continue
            paths = self._paths[job]
            if all_that_began:
                if (began := self._began.get(job)) is not None:
                    yield job, _running(label, paths, began, now, "")
            elif paths and _is_leased(paths, now):
                host = owner_of(paths.lease).get("host", "")
                yield job, _running(label, paths, _began(paths, now), now, host)

    def _left(self, running: Mapping[str, Running]) -> float | None:
        """Seconds that the rest takes, if jobs take as long as others of their stage did."""
        took = defaultdict[str, list[float]](list)
        for job, seconds in self._done.items():
            took[_stage(self._content["jobs"].get(job, ""))].append(seconds or 0.0)
        if not running or not took:
            return None
        means = {stage: fmean(times) for stage, times in took.items()}
        overall = fmean(time for times in took.values() for time in times)
        work = 0.0
        for job, label in self._content["jobs"].items():
            if job in self._done or job in self._failed:
                continue
            whole = means.get(_stage(label), overall)
            if (at := running.get(job)) is None:
                work += whole
            elif at.reading.left is not None:
                work += at.reading.left
            else:
                work += max(0.0, whole - at.seconds)
        return work / len(running)

    def _why(self, job: str) -> Failed:
        label, paths = self._content["jobs"].get(job, job), self._paths.get(job)
        if paths is None:
            return Failed(label, UNKNOWN, "")
        return Failed(label, failure(paths.log, label) or UNKNOWN, str(paths.log))


def builds(folder: Path) -> tuple[list[Build], Build | None]:
    """The builds that are at work in a folder, and of others the last that is known."""
    found = known(folder)
    at_work = [Build.of(path) for path, is_held in found if is_held]
    ended = [path for path, is_held in found if not is_held]
    try:
        return at_work, Build.of(ended[-1]) if ended else None
    except FileNotFoundError:
        # A build that has just begun has removed it.
        return at_work, None


def reading(line: str, age: float) -> Reading:
    """What the last line of a log says that was written so many seconds ago."""
    steps, loss, rate, left = (each.search(line) for each in (STEPS, LOSS, RATE, LEFT))
    if not (steps or loss or rate or left):
        return Reading(text=line)
    share = "/".join(filter(None, steps.groups())) if steps else ""
    to_go = max(0.0, _number(left[1]) - age) if left else None
    return Reading(
        share, _number(loss[1]) if loss else None, _number(rate[1]) if rate else None, to_go
    )


def _running(label: str, paths: Paths | None, since: float, now: float, host: str) -> Running:
    found = Reading()
    if paths is not None:
        try:
            written = paths.log.stat().st_mtime
        except OSError:
            written = 0.0
        line = (last_line(paths.log) or "").removeprefix(f"{label}: ")
        # One that has just begun may still have the log of an earlier try.
        if written >= since - 1 and not line.startswith(BEGINS):
            found = reading(line, now - written)
    return Running(label, now - since, found, host)


def _is_leased(paths: Paths, now: float) -> bool:
    """Whether a process makes a result, on any machine."""
    try:
        return now - os.stat(paths.lease).st_mtime < SECONDS
    except OSError:
        return False


def _began(paths: Paths, now: float) -> float:
    """When the job that is at work began, as its log says."""
    try:
        with paths.log.open(encoding="utf-8", errors="replace") as log:
            said = log.readline().rpartition(BEGINS)[2].strip()
        return datetime.datetime.strptime(f"{said}+0000", "%Y-%m-%d %H:%M:%S UTC%z").timestamp()
    except (OSError, ValueError):
        return now


def _paths(job: str) -> Paths | None:
    """Where the result of a job lies, by its manifest; None of jobs of other workflows."""
    path = Path(job)
    if not path.name.endswith(MANIFEST):
        return None
    return Paths(path.parent, path.name.removesuffix(MANIFEST).removesuffix(".") or None)


def _stage(label: str) -> str:
    return label.partition(" ")[0]


def _number(text: str) -> float:
    return float(text.replace(",", ""))
