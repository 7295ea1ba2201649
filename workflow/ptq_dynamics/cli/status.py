"""`ptq-dynamics status`: which results are current, and why the others are not."""

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ptq_dynamics.cli import captions, unchanged
from ptq_dynamics.cli.beyond import beyond
from ptq_dynamics.engine import fingerprint
from ptq_dynamics.engine.current import Results
from ptq_dynamics.engine.verified import Verifier
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.captions import PAGE
from ptq_dynamics.graph.due import Due
from ptq_dynamics.provenance.state import Finding, findings


@dataclass(frozen=True)
class Asked:
    """To say nothing unless all is fresh, to list every result as JSON, where all is fresh to
    write the page of captions, and to look at the paper, with claims and tables, too."""

    quiet: bool
    as_json: bool
    captions: bool
    paper: bool


def show(plan: Plan, asked: Asked) -> bool:
    """Print what is not fresh, with the reason; whether all is."""
    verifier = Verifier(deep=plan.site.config.choice.deep)
    due = Due(plan.site, Results(verifier))
    targets = plan.last()
    if asked.paper:
        targets.append(plan.typeset(Path("config")))
    current, stale = due.find(targets)
    fingerprint.note_planned()
    if asked.captions and not stale:
        captions.write(plan)
        if harm := due.note(lambda: beyond(plan)):
            print(f"warning: {harm}", file=sys.stderr)
    if asked.as_json:
        found = findings(plan.site, due, targets, verifier)
        print(json.dumps([each.content() for each in found], indent=1, ensure_ascii=False))
    elif not stale:
        accepted = sum(1 for job in current if due.accepted(job))
        more = f", {accepted} as accepted (trace tells why)" if accepted else ""
        said = f"all {len(current)} results are fresh{more}; nothing to do"
        print(said)
        if not verifier.deep and not asked.paper:
            page = [str(Path(plan.site.pictures) / PAGE)] if asked.captions else []
            unchanged.keep(sys.argv[1:], said, [*due.files(current), *page])
    elif not asked.quiet:
        _tabulate(findings(plan.site, due, stale, verifier), len(current))
    return not stale


def _tabulate(found: list[Finding], fresh: int) -> None:
    told = [each for each in found if each.state != "fresh"]
    width = max(len(each.job) for each in told)
    for each in told:
        print(f"{each.state:7}  {each.job:{width}}  {each.why}")
    counts = Counter(each.state for each in told)
    print(", ".join(f"{count} {state}" for state, count in counts.items()) + f", {fresh} fresh")
