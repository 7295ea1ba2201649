"""The files of what a build cost. They are no result of a job: a job that runs again takes another
time, and its result may be the same."""

from pathlib import Path

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.formats import FORMATS, Table
from ptq_dynamics.paper.costs import table
from ptq_dynamics.provenance.archive import Archive

STEM = "cost"


def files(folder: Path) -> list[Path]:
    """The files of the table, in the folder of a scale's results."""
    return [folder / f"{STEM}.{suffix}" for suffix in FORMATS]


def write(scale: str, folder: Path) -> Table:
    """Write the table of a scale into a folder; raises `Problem` where nothing is built, or where a
    record is damaged."""
    archive = Archive.of_scale(scale)
    found, damaged = archive.results, archive.read[1]
    if damaged:
        raise Problem(f"{damaged[0]}; ptq-dynamics audit --scale {scale} names all that is wrong")
    if not found:
        raise Problem(f"nothing is built at scale {scale}; make figures SCALE={scale} builds it")
    costs = table(each.record for each in found.values())
    for path, text in zip(files(folder), FORMATS.values(), strict=True):
        write_atomically(path, text(costs))
    return costs
