"""What SLURM says of its queue."""

import os
import subprocess
from dataclasses import dataclass

SECONDS = 60.0
# Reasons for waiting that only a person can end.
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
    """How a task ended, as SLURM calls it, where it still knows."""
    said = _ask(["sacct", "-X", "-n", "-P", "-o", "State", "-j", number])
    if said and said.strip():
        return said.strip().splitlines()[-1]
    said = _ask(["scontrol", "--oneliner", "show", "job", number])
    words = dict(word.split("=", 1) for word in (said or "").split() if "=" in word)
    return words.get("JobState")


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
