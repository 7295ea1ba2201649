"""`ptq-dynamics plan`: what a build would run, before anything runs or is submitted."""

import argparse
import json
from collections import Counter

from ptq_dynamics.cli import chosen
from ptq_dynamics.provenance.state import find


def options(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    chosen.add_choices(parser)
    parser.add_argument("--json", action="store_true", help="all of it, as JSON")


def run(arguments: argparse.Namespace) -> bool:
    """Print how many jobs of each kind would run, and how many results are fresh. A job that waits
    for another one counts: it ends at once where its inputs come out as they were."""
    plan = chosen.plan(arguments)
    found = find(plan, plan.last())
    kinds = [plan.site.kind(plan.site.made[each.manifest]) for each in found]
    fresh = Counter(kind for kind, each in zip(kinds, found, strict=True) if each.state == "fresh")
    jobs = {k: {"run": n - fresh[k], "fresh": fresh[k]} for k, n in Counter(kinds).items()}
    left_out = {**plan.site.config.scale.regime.left_out, **plan.site.config.runs.unknown}
    if arguments.json:
        print(json.dumps({"jobs": jobs, "left_out": left_out}, indent=1, ensure_ascii=False))
        return True
    jobs["all"] = {"run": len(found) - fresh.total(), "fresh": fresh.total()}
    print(f"{'kind':14} {'run':>7} {'fresh':>7}")
    for kind, counts in jobs.items():
        print(f"{kind:14} {counts['run']:7,} {counts['fresh']:7,}")
    for name, reason in left_out.items():
        print(f"left out: {name} ({reason})")
    return True
