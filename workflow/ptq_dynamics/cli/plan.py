"""`ptq-dynamics plan`: what a build would run, before anything runs or is submitted."""

import argparse
import json
from collections import Counter

from ptq_dynamics.cli import chosen
from ptq_dynamics.provenance.state import find


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked."""
    chosen.add_choices(parser)
    parser.add_argument("--json", action="store_true", help="all of it, as JSON")


def run(arguments: argparse.Namespace) -> bool:
    """Print how many jobs of each kind would run, and how many results are fresh. A job that waits
    for another one counts: it ends at once where its inputs come out as they were."""
    plan = chosen.plan(arguments)
    found = find(plan, plan.last())
    fresh, all_of = Counter[str](), Counter[str]()
    for each in found:
        kind = plan.site.kind(plan.site.made[each.manifest])
        all_of[kind] += 1
        fresh[kind] += each.state == "fresh"
    left_out = {**plan.site.config.scale.regime.left_out, **plan.site.config.runs.unknown}
    if arguments.json:
        kinds = {
            kind: {"run": count - fresh[kind], "fresh": fresh[kind]}
            for kind, count in all_of.items()
        }
        print(json.dumps({"jobs": kinds, "left_out": left_out}, indent=1, ensure_ascii=False))
        return True
    print(f"{'kind':14} {'run':>7} {'fresh':>7}")
    for kind, count in [*all_of.items(), ("all", len(found))]:
        done = fresh.total() if kind == "all" else fresh[kind]
        print(f"{kind:14} {count - done:7,} {done:7,}")
    for name, reason in left_out.items():
        print(f"left out: {name} ({reason})")
    return True
