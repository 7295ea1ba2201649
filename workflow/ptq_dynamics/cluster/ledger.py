"""What was sent to the cluster, and what came of it: files below one folder of the project.

An array is written down before it is submitted, under a name that SLURM knows it by; so whoever
comes after a process that was killed finds what that submitted. What came of a task its pack writes
beside it.
"""

import json
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.cluster.asked import Array, Task

ID = "slurm-id"
OUTCOME = ".outcome"
DAYS = 30


@dataclass(frozen=True)
class Place:
    """Where a task is: an array's folder, and the number of its pack there."""

    folder: Path
    number: int
    digest: str

    @property
    def outcome(self) -> Path:
        """The file that says what came of it."""
        return self.folder / f"{self.number}.{self.digest}{OUTCOME}"

    @property
    def name(self) -> str:
        """What SLURM calls the array, beside its number."""
        return self.folder.name


@dataclass(frozen=True)
class Outcome:
    """Exit status of a task, and its last line, if it failed."""

    status: int
    said: str = ""


@dataclass(frozen=True)
class Pack:
    """Files and command lines of the tasks of a pack, the threads of each, and the minutes that it
    has."""

    files: tuple[str, ...]
    commands: tuple[str, ...]
    threads: int
    minutes: int


class Ledger:
    """All arrays that were submitted from this project and not forgotten."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, array: Array) -> Path:
        """Write down what is about to be submitted; the array's folder."""
        folder = self._folder / f"ptq-{uuid.uuid4().hex[:20]}"
        folder.mkdir(parents=True)
        for number, tasks in enumerate(array.packs):
            files = tuple(task.file for task in tasks)
            commands = tuple(task.command for task in tasks)
            pack = Pack(files, commands, array.asked.threads, array.asked.minutes)
            write_atomically(folder / f"{number}.json", json.dumps(asdict(pack)))
        return folder

    def unfinished(self) -> Iterator[Place]:
        """Tasks without an outcome; what is old is forgotten."""
        oldest = time.time() - DAYS * 24 * 3600
        for folder in self._folder.glob("ptq-*"):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            for path in folder.glob("*.json"):
                for place in places(folder, int(path.stem)):
                    if not place.outcome.exists():
                        yield place


def pack(folder: Path, number: int) -> Pack:
    """A pack as it was submitted."""
    content = json.loads((folder / f"{number}.json").read_text(encoding="utf-8"))
    files, commands = (tuple(content[name]) for name in ("files", "commands"))
    return Pack(files, commands, content["threads"], content["minutes"])


def places(folder: Path, number: int) -> list[Place]:
    """Where the tasks of a pack are."""
    return [Place(folder, number, Path(file).stem) for file in pack(folder, number).files]


def place(folder: Path, number: int, task: Task) -> Place:
    """Where a task is."""
    return Place(folder, number, task.digest)


def number(place: Place) -> str | None:
    """What SLURM calls a task's pack; None before it has taken it."""
    try:
        found = (place.folder / ID).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return f"{found}_{place.number}"


def note_id(folder: Path, number: str) -> None:
    """An array was submitted."""
    write_atomically(folder / ID, number)


def outcome(place: Place) -> Outcome | None:
    """What came of a task, if anything."""
    try:
        content = json.loads(place.outcome.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Outcome(content["status"], content["said"])


def note_outcome(place: Place, came: Outcome) -> None:
    """Say what came of a task."""
    write_atomically(place.outcome, json.dumps(asdict(came)))
