"""`ptq-dynamics dev cost`: the table of what a build cost."""

import argparse
from pathlib import Path

from ptq_dynamics.claims.formats import as_markdown
from ptq_dynamics.cli import chosen
from ptq_dynamics.provenance.costs import write


def run(arguments: argparse.Namespace) -> bool:
    """Write and print the table of a scale."""
    site = chosen.plan(arguments).site
    print(as_markdown(write(site.config.choice.scale, Path(site.results))), end="")
    return True
