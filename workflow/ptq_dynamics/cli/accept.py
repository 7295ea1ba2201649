"""`ptq-dynamics dev accept`: results that a change of code or libraries does not change."""

import argparse
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen
from ptq_dynamics.engine import freshness
from ptq_dynamics.provenance.accepting import accept


def options(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("result", type=Path, help="a manifest, or a folder with results")
    parser.add_argument("--reason", required=True, help="why; it is kept in the records")
    chosen.add_choices(parser)


def run(arguments: argparse.Namespace) -> bool:
    """Accept the result with a manifest, or all stale ones in or below a folder."""
    if not arguments.reason.strip():
        raise Problem("--reason is empty; say why the change makes no difference")
    plan, place = chosen.plan(arguments), arguments.result.resolve()
    jobs = [job for job in plan.site.needed(plan.last()) if job.paths.record.exists()]
    meant = [job for job in jobs if job.paths.manifest.resolve().is_relative_to(place)]
    if not meant:
        raise Problem(f"{place} is no manifest of a result of this scale, nor a folder of any")
    lines = accept((job for job in meant if freshness.stale(job.spec, job.paths)), arguments.reason)
    print("\n".join([*lines, f"{len(lines)} results were accepted: {arguments.reason}"]))
    return True
