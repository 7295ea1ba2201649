"""What a build cost, by the records of its results.

It is no result of a job: a job that runs again takes another time, and its result may be the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ptq_dynamics.claims.formats import FORMATS, Cell, Table
from ptq_dynamics.content import write_atomically
from ptq_dynamics.jobs.record import Record
from ptq_dynamics.problem import Problem
from ptq_dynamics.provenance.archive import Archive, Result

STEM = "cost"
TITLE = "Cost by kind of job, as records have it"
HEADS = ("Kind", "Jobs", "Tokens trained", "Wall hours", "Core hours", "GPU hours")
HOUR = 3600


@dataclass(frozen=True)
class Cost:
    """So many jobs, their tokens of training, seconds by the clock, processor time, and seconds of
    all accelerators that they used."""

    jobs: int = 0
    tokens: int = 0
    seconds: float = 0.0
    core_seconds: float = 0.0
    gpu_seconds: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.jobs + other.jobs,
            self.tokens + other.tokens,
            self.seconds + other.seconds,
            self.core_seconds + other.core_seconds,
            self.gpu_seconds + other.gpu_seconds,
        )

    @classmethod
    def of(cls, record: Record) -> "Cost":
        """What one job cost."""
        device = record.device
        gpus = 0 if device.kind == "cpu" else device.count or 1
        tokens = record.tokens or 0
        return cls(1, tokens, record.seconds, record.cpu_seconds, gpus * record.seconds)


def files(folder: Path) -> list[Path]:
    """The files of the table, in the folder of a scale's results."""
    return [folder / f"{STEM}.{suffix}" for suffix in FORMATS]


def write(scale: str, folder: Path) -> Table:
    """Write the table of a scale into a folder; raises `Problem` where nothing is built."""
    found = Archive.of_scale(scale).results
    if not found:
        raise Problem(f"nothing is built at scale {scale}; make figures SCALE={scale} builds it")
    costs = table(found.values())
    for path, text in zip(files(folder), FORMATS.values(), strict=True):
        write_atomically(path, text(costs))
    return costs


def table(results: Iterable[Result]) -> Table:
    """A row for every kind of job, named by its stage, the most processor time first; and all."""
    kinds, total = dict[str, Cost](), Cost()
    for result in results:
        kind, cost = _kind(str(result.record.job["stage"])), Cost.of(result.record)
        kinds[kind] = kinds.get(kind, Cost()) + cost
        total += cost
    ordered = sorted(kinds.items(), key=lambda each: (-each[1].core_seconds, each[0]))
    return Table(TITLE, HEADS, [_row(*each) for each in [*ordered, ("all", total)]])


def _kind(stage: str) -> str:
    """All layouts of figures are one kind."""
    return "figures" if stage.startswith("figures.") else stage


def _row(kind: str, cost: Cost) -> list[Cell]:
    hours = (cost.seconds, cost.core_seconds, cost.gpu_seconds)
    return [kind, cost.jobs, cost.tokens, *(f"{each / HOUR:.4f}" for each in hours)]
