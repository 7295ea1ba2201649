"""`ptq-dynamics status`: which results are fresh, and why the others are not."""

import argparse
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from ptq_dynamics.cli import chosen
from ptq_dynamics.provenance.state import find, shortened


def options(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    chosen.add_choices(parser)
    for name, words in (
        ("deep", "also read all bytes of results"),
        ("json", "list every result, as JSON"),
        ("paper", "also look at claims, tables and the paper"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=words)


def run(arguments: argparse.Namespace) -> bool:
    """Print what is not fresh, with the reason; whether all is."""
    plan = chosen.plan(arguments)
    paper = [plan.typeset(Path("config"))] if arguments.paper else []
    found = find(plan, [*plan.last(), *paper], deep=arguments.deep)
    rest = [each for each in found if each.state != "fresh"]
    if arguments.json:
        print(json.dumps([asdict(each) for each in found], indent=1, ensure_ascii=False))
    elif rest:
        width = max(len(each.job) for each in rest)
        for each in rest:
            print(f"{each.state:7}  {each.job:{width}}  {shortened(each.reasons)}")
        counts = Counter(each.state for each in rest)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        print(f"{states}, {len(found) - len(rest)} fresh")
    else:
        accepted = sum(1 for each in found if each.reasons)
        more = f", {accepted} as accepted (trace shows why)" if accepted else ""
        print(f"all {len(found)} results are fresh{more}; nothing to do")
    return not rest
