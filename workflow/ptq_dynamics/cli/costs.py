"""`ptq-dynamics cost`: the table of what a build cost."""

from pathlib import Path

from ptq_dynamics.claims.formats import as_markdown
from ptq_dynamics.graph import Plan
from ptq_dynamics.provenance.costs import write


def show(plan: Plan) -> None:
    """Write and print the table of a scale."""
    print(as_markdown(write(plan.site.config.choice.scale, Path(plan.site.results))), end="")
