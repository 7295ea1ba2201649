"""The table of a build's cost, from the records."""

from collections import defaultdict
from collections.abc import Iterable
from operator import add
from pathlib import Path

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.formats import FORMATS, Cell, Table
from ptq_dynamics.engine.record import TRAINED, Record
from ptq_dynamics.provenance.archive import Archive

HEADS = ("Kind", "Jobs", "Tokens trained", "Wall hours", "Core hours", "GPU hours")


def paths(folder: Path) -> list[Path]:
    """Return the paths of the table in a folder."""
    return [folder / f"cost.{suffix}" for suffix in FORMATS]


def write_costs(scale: str, folder: Path) -> Table:
    """Write the table of a scale into a folder; raises `Problem` if nothing is built."""
    if not (results := Archive.of_scale(scale).results.values()):
        raise Problem(f"scale {scale} has no results; run make figures SCALE={scale}")
    table = cost_table(result.record for result in results)
    for path in paths(folder):
        write_atomically(path, FORMATS[path.suffix[1:]](table))
    return table


def cost_table(records: Iterable[Record]) -> Table:
    """Return a row for every kind of job, by processor time, and the sums."""
    sums = defaultdict[str, list[float]](lambda: [0] * 5)
    for record in records:
        stage = str(record.job["stage"])
        gpus = 0 if record.device.kind == "cpu" else record.device.count or 1
        row = (1, record.facts.get(TRAINED, 0), record.seconds, record.cpu_seconds)
        for kind in ("figures" if stage.startswith("figures.") else stage, "all"):
            sums[kind] = [*map(add, sums[kind], (*row, gpus * record.seconds))]
    total = sums.pop("all")
    ordered = sorted(sums.items(), key=lambda item: (-item[1][3], item[0]))
    rows: list[list[Cell]] = [
        [kind, int(jobs), int(tokens), *(f"{duration / 3600:.4f}" for duration in seconds)]
        for kind, (jobs, tokens, *seconds) in [*ordered, ("all", total)]
    ]
    return Table("Cost by kind of job, as records have it", HEADS, rows)
