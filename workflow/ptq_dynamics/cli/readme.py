"""`ptq-dynamics dev readme`: what came out at the released scale, in the README."""

import argparse
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import CLAIMS
from ptq_dynamics.cli import chosen
from ptq_dynamics.cli.claims import counted, read
from ptq_dynamics.graph import Plan
from ptq_dynamics.provenance.released import folders

PAGE = Path("README.md")
BEGIN = "<!-- what came out: written by `ptq-dynamics dev readme` -->\n"
END = "<!-- end of what came out -->\n"
# That a reader sees first.
SHOWN = ("fig04", "fig07")
HEAD = "| No. | What the paper says | Verdict | Its inequalities |\n|---|---|---|---|"


def run(arguments: argparse.Namespace) -> bool:
    """Write what came out into the README; raises `Problem` where nothing is released, or the page
    has no place for it."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(f"{re.escape(BEGIN)}.*?{re.escape(END)}", text, re.S)
    if found is None:
        raise Problem(f"{PAGE} has no lines {BEGIN.strip()} and {END.strip()}; put them back")
    write_atomically(PAGE, text.replace(found[0], BEGIN + block(chosen.plan(arguments)) + END))
    return True


def block(plan: Plan) -> str:
    """Two figures, and a line for every claim, as they are released at the scale of the plan."""
    scale = plan.site.config.choice.scale
    results, pictures = folders(scale)
    path = results / CLAIMS
    if not path.is_file():
        raise Problem(f"{path} is missing; make release SCALE={scale} makes it")
    judged, parts = read(path), list[str]()
    for name in SHOWN:
        figure = plan.site.config.figures[name]
        caption = " ".join(figure.caption.split())
        picture = f"![{name}: {figure.title}]({pictures}/{name}.png)"
        parts.append(f"{picture}\n\n*{figure.title}. {caption}*\n")
    parts.append(
        f"At {judged['scale']}: [all figures]({pictures}/README.md), [every inequality with its "
        f"numbers]({results}/tables/claims.md), and [how verdicts come about](docs/claims.md). "
        f"{_seeds(judged)}\n"
    )
    return "\n".join([*parts, HEAD, *map(_row, judged["claims"]), ""])


def _seeds(judged: Mapping[str, Any]) -> str:
    """How many of the measured inequalities rest on how many seeds."""
    every = [one for claim in judged["claims"] for one in claim.get("inequalities", ())]
    found = sorted(Counter(len(one["seeds"]) for one in every if "seeds" in one).items())
    counts = [f"{count} on {n} {'seed' if n == 1 else 'seeds'}" for n, count in found]
    total, rest = sum(count for _, count in found), ", ".join(counts).replace(" on", " rest on", 1)
    return f"Of its {total} measured inequalities, {rest}."


def _row(claim: dict[str, Any]) -> str:
    number = "" if claim["number"] is None else claim["number"]
    about = " (about miniatures of public models)" if claim["about"] else ""
    says = claim["says"].replace("|", "∣").replace("<", "&lt;")
    return f"| {number} | {says}{about} | {claim['verdict']} | {counted(claim)} |"
