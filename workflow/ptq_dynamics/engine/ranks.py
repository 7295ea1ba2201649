"""One job in several processes of a machine, by rank.

How many, and what each keeps of weights, says whoever runs the job, by variables of the environment
(see `team`); specifications know nothing of it, but records do. A stage that can be run so names in
RANKS the module that does its work. The process of the job computes nothing then: it starts all
ranks, waits, and ends all as soon as one fails, or when it is ended itself. So no launcher is
wanted, and a job is one process to lease, log, signals and Snakemake, as any other.
"""

import importlib
import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from subprocess import DEVNULL, Popen
from types import ModuleType
from typing import Any, get_args

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import fingerprint, processes, record, signals
from ptq_dynamics.engine.context import Context, Progress, Seat, called
from ptq_dynamics.engine.machine import Device
from ptq_dynamics.engine.team import Processes, Sharding, Team
from ptq_dynamics.engine.variables import GPUS, PROCESSES, SHARDING

NOTE = "processes.json"  # in a work folder: the teams that have worked there
POLL = 0.05  # seconds between looks at the ranks
# Seconds in which other ranks may say why one of them failed.
LAST_WORDS = 2.0
STDERR = 2


def team(stage: ModuleType) -> Team:
    """The processes for a stage's job: PROCESSES, or as many of the visible GPUs as GPUS says;
    one, where the stage knows of no more."""
    if not hasattr(stage, "RANKS"):
        return Team()
    exactly, at_most = _number(PROCESSES), _number(GPUS) or 1
    if (exactly or at_most) == 1:
        return Team()
    visible: int = importlib.import_module("torch").cuda.device_count()
    if exactly and 0 < visible < exactly:
        raise Problem(
            f"{PROCESSES}={exactly} asks for more than the {visible} GPUs that are visible"
        )
    sharding: Any = os.environ.get(SHARDING) or "none"
    if sharding not in get_args(Sharding):
        raise Problem(f"{SHARDING}={sharding} is none of {', '.join(get_args(Sharding))}")
    count = exactly or max(1, min(at_most, visible))
    return Team(count, sharding) if count > 1 else Team()


def _number(name: str) -> int | None:
    found = os.environ.get(name)
    if not found:
        return None
    if not found.isdecimal() or int(found) < 1:
        raise Problem(f"{name}={found} is no number of processes; set it to 1 or more")
    return int(found)


def environment(account: record.Record) -> dict[str, str]:
    """Variables with which a job has as many processes as by its record."""
    last = account.processes.teams[-1] if account.processes else Team()
    return {PROCESSES: str(last.count), SHARDING: last.sharding}


def note(
    job: Mapping[str, Any], stage: ModuleType, now: Team, work: Path, *, goes_on: bool
) -> Processes | None:
    """What a record says of the processes of a job that begins, or goes on in a work folder; None
    where one process alone does all."""
    if not hasattr(stage, "RANKS"):
        return None
    path, earlier = work / NOTE, list[Team]()
    if goes_on:
        # What was left by a process alone may have no note.
        noted = json.loads(path.read_text(encoding="utf-8")) if path.exists() else [{}]
        earlier = [Team(**each) for each in noted]
    teams = [*earlier, *([now] if earlier[-1:] != [now] else [])]
    write_atomically(path, json.dumps([asdict(each) for each in teams]))
    if teams == [Team()]:
        return None
    code = fingerprint.extended(job, stage.RANKS)["definitions"][fingerprint.ALL]
    return Processes(tuple(teams), stage.RANKS, code)


@dataclass(frozen=True)
class Request:
    """What a rank is to do: the job, with the module that does it; what the stage would be given;
    the log that the leader adds to; and the file for its answer."""

    seat: Seat
    job: Mapping[str, Any]
    module: str
    context: Context[Any]
    log: Path | None
    answer: Path


@dataclass(frozen=True)
class Answer:
    """What a rank has at its end: facts of the result, and the device that it used."""

    facts: Mapping[str, Any]
    device: Device


@dataclass(frozen=True)
class Left:
    """What a rank answers that was called back."""


@dataclass(frozen=True)
class Failure:
    """Why a rank failed; `trace` where that was not foreseen."""

    reason: str
    trace: str = ""


def run(
    job: Mapping[str, Any], stage: ModuleType, team: Team, context: Context[Any]
) -> tuple[Mapping[str, Any], Device]:
    """Have a team do the work of a job's stage; facts of the result, and the device that was used,
    with the most memory of any.

    Raises `Problem` where a rank fails, `CalledBack` where the leader was called back.
    """
    log = None if context.progress.log is None else Path(context.progress.log.name)
    full = fingerprint.extended(job, stage.RANKS)
    given = replace(context, progress=Progress(context.progress.name))
    ranks = list[_Rank]()
    with tempfile.TemporaryDirectory(prefix="ptq-dynamics-ranks-") as name:
        try:
            for number in range(team.count):
                seat = Seat(number, team, Path(name) / "meeting")
                answer = Path(name) / f"answer-{number}"
                request = Path(name) / f"request-{number}"
                content = Request(seat, full, stage.RANKS, given, log, answer)
                request.write_bytes(pickle.dumps(content))
                command = [sys.executable, "-m", "ptq_dynamics.engine.rank", str(request)]
                process = processes.start(command, stdout=DEVNULL, stderr=STDERR)
                ranks.append(_Rank(number, process, answer))
            found = _wait(ranks, Path(name) / "meeting")
            for each in ranks:
                # To the end, so that its time counts.
                each.process.wait()
        finally:
            for each in ranks:
                processes.end(each.process)
    first, peaks = found[0], [each.device.peak_memory or 0 for each in found]
    return first.facts, replace(first.device, peak_memory=max(peaks) or None)


@dataclass(frozen=True)
class _Rank:
    """A process that does a job with others, and the file that its answer comes to."""

    number: int
    process: Popen[str]
    answer: Path

    def look(self) -> Answer | Left | Failure | None:
        """Its answer, if there is one by now."""
        ended = self.process.poll() is not None
        if self.answer.exists():
            found: Answer | Left | Failure = pickle.loads(self.answer.read_bytes())
            return found
        if ended:
            why = f"process {self.number} of the job was killed (out of memory?)"
            return Failure(f"{why}; run the same command again to go on")
        return None


def _wait(ranks: Sequence[_Rank], meeting: Path) -> list[Answer]:
    """What all ranks answer, in their order; raises as soon as one has failed."""
    waiting, found, failures = list(ranks), dict[int, Answer](), list[Failure]()
    end, left = float("inf"), False
    while waiting and time.monotonic() < end:
        if signals.called_back():
            called(meeting).touch()
        for each in list(waiting):
            match each.look():
                case Answer() as answer:
                    found[each.number] = answer
                    waiting.remove(each)
                case Left():
                    left = True
                    waiting.remove(each)
                case Failure() as failure:
                    failures.append(failure)
                    waiting.remove(each)
        if failures:
            # The first to fail may have lost another that failed before.
            end = min(end, time.monotonic() + LAST_WORDS)
        time.sleep(POLL)
    if failures:
        raise _error(failures)
    if left:
        raise signals.CalledBack
    return [found[each.number] for each in ranks]


def _error(failures: Sequence[Failure]) -> Exception:
    """The failure that is told: one that was foreseen, which explains the others."""
    first = min(failures, key=lambda each: bool(each.trace))
    if not first.trace:
        return Problem(first.reason)
    error = RuntimeError(first.reason)
    error.add_note(first.trace)
    return error
