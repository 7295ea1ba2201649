"""`ptq-dynamics captions`: the page of captions beside the figures."""

from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.captions import write_page


def write(plan: Plan, chosen: Path | None = None) -> None:
    """Write the page into a folder with figures, by default the scale's."""
    folder = chosen or Path(plan.site.pictures)
    if not folder.is_dir():
        raise Problem(f"{folder} has no figures yet; make figures draws them")
    write_page(plan.site.config.figures, folder)
    if chosen is not None:
        from ptq_dynamics.provenance import sums  # `make figures` asks for the status each time

        sums.renew(folder)
