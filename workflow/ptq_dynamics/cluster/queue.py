"""What SLURM says of its queue."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

SECONDS = 60.0
CANCELLED, WAITING = "CANCELLED", "PENDING"
NO_TASK = "4294967294"  # NO_VAL of SLURM
# SLURM holds a task for this reason whose node was lost as it began; no person did.
LAUNCH_FAILED = "launch failed requeued held"
# Parts of reasons for which a task waits until someone lets it go.
STUCK = ("JobHeldUser", "JobHeldAdmin", "held", "PartitionTimeLimit", "DependencyNeverSatisfied")


@dataclass(frozen=True)
class Queued:
    """A task that has not ended, by the name of its array."""

    state: str
    reason: str
    name: str


def queue() -> dict[str, Queued] | None:
    """All of this user's tasks that have not ended, by id; None where SLURM does not answer."""
    command = ["squeue", "--noheader", "--array", "--me", "--format=%i|%T|%j|%r"]
    said = _ask(command)
    if said is None:
        return None
    found = {}
    for line in said.splitlines():
        number, state, name, reason = line.strip().split("|", 3)
        found[number] = Queued(state, reason, name)
    return found


def ended(number: str) -> str | None:
    """How a task ended, as SLURM calls it, where it still knows. Of a task that never began it
    knows no more than its array."""
    array = number.partition("_")[0]
    said = _ask(["sacct", "-X", "-n", "-P", "-o", "JobID,State", "-j", array])
    if said and said.strip():
        return by_accounts(number, [tuple(line.split("|", 1)) for line in said.splitlines()])
    return by_controller(number, _ask(["scontrol", "--oneliner", "show", "job", array]) or "")


def by_accounts(number: str, records: Sequence[tuple[str, ...]]) -> str | None:
    """The state of a task by the id and state of each record of its array. Tasks that have not
    begun share one, `7_[0-3,5]`, which loses those that are cancelled."""
    task = number.partition("_")[2]
    for place, state in reversed(records):
        if place == number:
            return state
    for place, state in records:
        if _holds(place.partition("_")[2], task):
            return None if state == WAITING else state
    return CANCELLED


def by_controller(number: str, said: str) -> str | None:
    """The state of a task by what the controller shows of its array, of which it soon forgets
    parts."""
    task = number.partition("_")[2]
    lines = [
        dict(word.split("=", 1) for word in line.split() if "=" in word)
        for line in said.splitlines()
    ]
    states = {words.get("ArrayTaskId", ""): words.get("JobState") for words in lines}
    if task in states:
        return states[task]
    state = next((state for tasks, state in states.items() if _holds(tasks, task)), None)
    return None if state == WAITING else state


def _holds(tasks: str, task: str) -> bool:
    """Whether a task is among those of a record, `[0-3,5%2]` or `0-3,5`; none are named where all
    have gone."""
    if tasks == NO_TASK:
        return True
    for part in tasks.strip("[]").partition("%")[0].split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and int(first) <= int(task) <= int(last or first):
            return True
    return False


def cancel(ids: list[str]) -> str | None:
    """End arrays or tasks; why that failed, if it did."""
    # Some hundred at a time: a command line has its limit.
    for first in range(0, len(ids), 500):
        done = _run(["scancel", *ids[first : first + 500]])
        if done is None or done.returncode:
            return "SLURM does not answer" if done is None else done.stderr.strip()
    return None


def requeue(number: str) -> bool:
    """Have a running task of one's own begin again later; whether SLURM does so."""
    done = _run(["scontrol", "requeue", number])
    return done is not None and done.returncode == 0


def release(number: str) -> bool:
    """Let a task go that is held; whether SLURM does so."""
    done = _run(["scontrol", "release", number])
    return done is not None and done.returncode == 0


def _ask(command: list[str]) -> str | None:
    done = _run(command)
    return None if done is None or done.returncode else done.stdout


def _run(command: list[str]) -> "subprocess.CompletedProcess[str] | None":
    # Formats and widths are not the user's.
    ours = ("SQUEUE_", "SACCT_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, env=environment
        )
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return None
