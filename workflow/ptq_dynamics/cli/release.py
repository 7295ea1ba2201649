"""`ptq-dynamics release`: all that the repository keeps of a scale."""

import argparse

from ptq_dynamics.cli import chosen
from ptq_dynamics.provenance.released import release


def run(arguments: argparse.Namespace) -> bool:
    """Write the release of a scale in place of the one before."""
    place, count = release(chosen.plan(arguments))
    print(f"{place}: {count} results, {place.stat().st_size / 1e6:.1f} MB")
    return True
