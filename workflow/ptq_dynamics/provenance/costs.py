"""The table of what a build cost, in the folder of a scale's results; no job makes it, since a job
that runs again takes another time."""

from pathlib import Path

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.formats import FORMATS, Table
from ptq_dynamics.paper.costs import table
from ptq_dynamics.provenance.archive import Archive


def files(folder: Path) -> list[Path]:
    """The files of the table in a folder."""
    return [folder / f"cost.{suffix}" for suffix in FORMATS]


def write(scale: str, folder: Path) -> Table:
    """Write the table of a scale into a folder; raises `Problem` where nothing is built."""
    results = Archive.of_scale(scale).results
    if not results:
        raise Problem(f"nothing is built at scale {scale}; make figures SCALE={scale} builds it")
    costs = table(each.record for each in results.values())
    for path, text in zip(files(folder), FORMATS.values(), strict=True):
        write_atomically(path, text(costs))
    return costs
