"""The table of what a build cost, by the records of its results.

It is no result of a job: a job that runs again takes another time, and its result may be the same.
"""

from collections.abc import Iterable
from pathlib import Path

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.formats import FORMATS, Cell, Table
from ptq_dynamics.engine.record import TRAINED, Record
from ptq_dynamics.provenance.archive import Archive

TITLE = "Cost by kind of job, as records have it"
HEADS = ("Kind", "Jobs", "Tokens trained", "Wall hours", "Core hours", "GPU hours")
HOUR = 3600


def files(folder: Path) -> list[Path]:
    """The files of the table in a folder."""
    return [folder / f"cost.{suffix}" for suffix in FORMATS]


def write(scale: str, folder: Path) -> Table:
    """Write the table of a scale into a folder; raises `Problem` where nothing is built."""
    results = Archive.of_scale(scale).results
    if not results:
        raise Problem(f"scale {scale} has no results; run make figures SCALE={scale}")
    costs = table(each.record for each in results.values())
    for path, text in zip(files(folder), FORMATS.values(), strict=True):
        write_atomically(path, text(costs))
    return costs


def table(records: Iterable[Record]) -> Table:
    """A row for every kind of job, the most processor time first, and one for all."""
    sums = {"all": (0, 0, 0.0, 0.0, 0.0)}
    for record in records:
        stage = str(record.job["stage"])
        gpus = 0 if record.device.kind == "cpu" else record.device.count or 1
        for kind in ("figures" if stage.startswith("figures.") else stage, "all"):
            jobs, tokens, wall, core, gpu = sums.get(kind, (0, 0, 0.0, 0.0, 0.0))
            hours = (wall + record.seconds, core + record.cpu_seconds, gpu + gpus * record.seconds)
            sums[kind] = (jobs + 1, tokens + record.facts.get(TRAINED, 0), *hours)
    total = sums.pop("all")
    ordered = sorted(sums.items(), key=lambda each: (-each[1][3], each[0]))
    rows: list[list[Cell]] = [
        [kind, jobs, tokens, *(f"{each / HOUR:.4f}" for each in seconds)]
        for kind, (jobs, tokens, *seconds) in [*ordered, ("all", total)]
    ]
    return Table(TITLE, HEADS, rows)
