"""`ptq-dynamics cost`: the table of what a build cost."""

from pathlib import Path

from ptq_dynamics.claims.formats import FORMATS, as_markdown
from ptq_dynamics.content import write_atomically
from ptq_dynamics.paper.costs import table
from ptq_dynamics.plan import Plan
from ptq_dynamics.problem import Problem
from ptq_dynamics.provenance.archive import Archive

STEM = "cost"


def files(results: str) -> list[Path]:
    """The files of the table, in the folder of a scale's results."""
    return [Path(results) / f"{STEM}.{suffix}" for suffix in FORMATS]


def show(plan: Plan) -> None:
    """Write and print the table of a scale."""
    scale = plan.site.config.choice.scale
    found = Archive.of_scale(scale).results
    if not found:
        raise Problem(f"nothing is built at scale {scale}; make figures SCALE={scale} builds it")
    costs = table(each.record for each in found.values())
    for path, text in zip(files(plan.site.results), FORMATS.values(), strict=True):
        write_atomically(path, text(costs))
    print(as_markdown(costs), end="")
