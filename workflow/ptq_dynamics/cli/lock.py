"""`ptq-dynamics lock`: revisions of public models as commits of the hub."""

import argparse

from ptq_dynamics.cli import chosen
from ptq_dynamics.config.releases import to_lock
from ptq_dynamics.hub.lock import LOCK, lock


def options(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(arguments: argparse.Namespace) -> bool:
    """Lock what a scale with the hub fetches; whether all could be resolved."""
    paper = chosen.load({"scale": "paper"})
    resolved, failed = lock(to_lock(paper.runs.public.values(), paper.scale))
    print(f"{resolved} revisions are locked in {LOCK}", *(f"error: {e}" for e in failed), sep="\n")
    return not failed
