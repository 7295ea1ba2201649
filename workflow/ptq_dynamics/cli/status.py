"""`ptq-dynamics status`: which results are fresh, and why the others are not."""

import argparse
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from ptq_dynamics.cli import chosen
from ptq_dynamics.provenance.state import find


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked."""
    chosen.add_choices(parser)
    parser.add_argument("--deep", action="store_true", help="also read all bytes of results")
    parser.add_argument("--json", action="store_true", help="list every result, as JSON")
    parser.add_argument(
        "--paper", action="store_true", help="also look at claims, tables and the paper"
    )


def run(arguments: argparse.Namespace) -> bool:
    """Print what is not fresh, with the reason; whether all is."""
    plan = chosen.plan(arguments)
    targets = plan.last()
    if arguments.paper:
        targets.append(plan.typeset(Path("config")))
    found = find(plan, targets, deep=arguments.deep)
    rest = [each for each in found if each.state != "fresh"]
    if arguments.json:
        print(json.dumps([asdict(each) for each in found], indent=1, ensure_ascii=False))
        return not rest
    if not rest:
        accepted = sum(1 for each in found if each.reasons)
        more = f", {accepted} as accepted (trace shows why)" if accepted else ""
        print(f"all {len(found)} results are fresh{more}; nothing to do")
        return True
    width = max(len(each.job) for each in rest)
    for each in rest:
        print(f"{each.state:7}  {each.job:{width}}  {each.why}")
    counts = Counter(each.state for each in rest)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    print(f"{states}, {len(found) - len(rest)} fresh")
    return False
