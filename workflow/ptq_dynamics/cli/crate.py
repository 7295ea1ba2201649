"""`ptq-dynamics dev crate`: a scale's results with their provenance, for tools of others."""

import argparse
from pathlib import Path

from ptq_dynamics.cli import chosen


def options(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("place", type=Path, help="a new folder, or a file that ends in .zip")
    chosen.add_scale(parser)


def run(arguments: argparse.Namespace) -> bool:
    """Write a crate of all that is built at a scale."""
    from ptq_dynamics.provenance import crate

    count = crate.write(chosen.plan(arguments).site.config.choice.scale, arguments.place)
    print(f"{arguments.place} describes {count} jobs")
    return True
