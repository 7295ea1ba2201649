"""What a job asks of a cluster, and what of that goes together."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

MEMORY_MB = 1000  # of a job that says nothing


@dataclass(frozen=True)
class Asked:
    """Main memory in MB, time limit in minutes, expected seconds, and GPUs, of any model or one."""

    threads: int
    memory_mb: int
    minutes: int
    seconds: int
    gpus: int = 0
    gpu_model: str | None = None

    @classmethod
    def of(cls, job: Any) -> "Asked":
        """What a job of Snakemake asks by its threads and resources."""
        has = job.resources.get
        minutes = int(has("runtime") or 1)
        return cls(
            threads=job.threads,
            memory_mb=int(has("mem_mb") or MEMORY_MB),
            minutes=minutes,
            seconds=int(has("expected") or 60 * minutes),
            gpus=int(has("gpu") or 0),
            gpu_model=has("gpu_model"),
        )


@dataclass(frozen=True)
class Task:
    """A job by the file of its specification, whose name is a digest of that, and the command line
    that runs it."""

    file: str
    command: str
    asked: Asked

    @property
    def digest(self) -> str:
        """What tells it from other jobs, and from itself with another specification."""
        return Path(self.file).stem


@dataclass(frozen=True)
class Array:
    """Packs of tasks that are submitted with one call, and ask the same; the tasks of a pack run
    one after the other."""

    packs: tuple[tuple[Task, ...], ...]
    asked: Asked


def arrays(tasks: Iterable[Task], seconds: float, longest: int, most: int) -> Iterator[Array]:
    """Tasks in packs of about so many seconds, and packs that ask alike in arrays of `most`.

    Memory and time are asked for in powers of two, so that there are few kinds; time up to the
    `longest` limit, in minutes.
    """
    packed = [pack for group in _alike(tasks) for pack in _packs(group, seconds)]
    packed.sort(key=lambda pack: _kind(pack, longest))
    for (threads, gpus, model, memory, minutes), group in groupby(
        packed, key=lambda pack: _kind(pack, longest)
    ):
        found = list(group)
        expected = max(sum(task.asked.seconds for task in pack) for pack in found)
        asked = Asked(threads, memory, minutes, expected, gpus, model or None)
        for first in range(0, len(found), most):
            yield Array(tuple(found[first : first + most]), asked)


def _alike(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Tasks that may run in one SLURM job."""

    def kind(task: Task) -> tuple[int, int, str, int]:
        asked = task.asked
        return asked.threads, asked.gpus, asked.gpu_model or "", _power(asked.memory_mb)

    for _, group in groupby(sorted(tasks, key=kind), key=kind):
        yield list(group)


def _packs(tasks: Sequence[Task], seconds: float) -> Iterator[tuple[Task, ...]]:
    pack: list[Task] = []
    for task in tasks:
        if pack and sum(each.asked.seconds for each in [*pack, task]) > seconds:
            yield tuple(pack)
            pack = []
        pack.append(task)
    if pack:
        yield tuple(pack)


def _kind(pack: Sequence[Task], longest: int) -> tuple[int, int, str, int, int]:
    first = pack[0].asked
    # Jobs of a pack are forks of one process, and what they share is counted twice.
    memory = _power(max(task.asked.memory_mb for task in pack) * min(len(pack), 2))
    minutes = min(_power(sum(task.asked.minutes for task in pack)), longest)
    return first.threads, first.gpus, first.gpu_model or "", memory, minutes


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << max(number - 1, 0).bit_length()
