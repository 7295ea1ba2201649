"""What a build cost, by the records of its results.

It is no result of a job: a job that runs again takes another time, and its result may be the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ptq_dynamics.claims.formats import Cell, Table
from ptq_dynamics.engine.record import Record

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


def table(records: Iterable[Record]) -> Table:
    """A row for every kind of job, named by its stage, the most processor time first; and all."""
    kinds, total = dict[str, Cost](), Cost()
    for record in records:
        kind, cost = _kind(str(record.job["stage"])), Cost.of(record)
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
