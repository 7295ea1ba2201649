"""`ptq-dynamics readme`: what came out at the released scale, in the README."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import CLAIMS
from ptq_dynamics.cli.claims import read
from ptq_dynamics.config import Figure
from ptq_dynamics.graph import Plan
from ptq_dynamics.provenance.keeping import Places

PAGE = Path("README.md")
BEGIN = "<!-- what came out: written by `ptq-dynamics readme` -->\n"
END = "<!-- end of what came out -->\n"
# That a reader sees first.
SHOWN = ("fig04", "fig07")
HEADS = ("No.", "What the paper says", "Verdict", "Its inequalities")


def write(plan: Plan) -> None:
    """Write what came out into the README; raises `Problem` where nothing is released, or the page
    has no place for it."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(f"{re.escape(BEGIN)}.*?{re.escape(END)}", text, re.S)
    if found is None:
        raise Problem(f"{PAGE} has no lines {BEGIN.strip()} and {END.strip()}; put them back")
    said = BEGIN + block(plan) + END
    write_atomically(PAGE, text.replace(found[0], said))


def block(plan: Plan) -> str:
    """Two figures, and a line for every claim, as they are released at the scale of the plan."""
    scale = plan.site.config.choice.scale
    kept = Places.of(scale)
    path = kept.results / CLAIMS
    if not path.is_file():
        raise Problem(f"{path} is missing; make release SCALE={scale} makes it")
    judged = read(path)
    figures = plan.site.config.figures
    parts = [_picture(name, figures[name], kept.pictures) for name in SHOWN]
    return "\n".join([*parts, _introduction(kept, judged), "".join(_table(judged))])


def _picture(name: str, figure: Figure, folder: Path) -> str:
    if not (folder / f"{name}.png").is_file():
        raise Problem(f"{folder}/{name}.png is missing; make release draws it")
    caption = " ".join(figure.caption.split())
    return f"![{name}: {figure.title}]({folder}/{name}.png)\n\n*{figure.title}. {caption}*\n"


def _introduction(kept: Places, judged: Mapping[str, Any]) -> str:
    return (
        f"At {judged['scale']}: [all figures]({kept.pictures}/README.md), [every "
        f"inequality with its numbers]({kept.results}/tables/claims.md), and [how verdicts come "
        f"about](docs/claims.md). {_seeds(judged)}".rstrip()
        + "\n"
    )


def _seeds(judged: Mapping[str, Any]) -> str:
    """How many of the measured inequalities rest on how many seeds."""
    every = [one for claim in judged["claims"] for one in claim.get("inequalities", ())]
    found = sorted(Counter(len(one["seeds"]) for one in every if "seeds" in one).items())
    if not found:
        return ""
    first, *others = [(count, f"{n} {'seed' if n == 1 else 'seeds'}") for n, count in found]
    more = "".join(f", {count} on {seeds}" for count, seeds in others)
    total = sum(count for _, count in found)
    return f"Of its {total} measured inequalities, {first[0]} rest on {first[1]}{more}."


def _table(judged: Mapping[str, Any]) -> Iterator[str]:
    yield f"| {' | '.join(HEADS)} |\n|---|---|---|---|\n"
    for claim in judged["claims"]:
        number = "" if claim["number"] is None else claim["number"]
        about = " (about miniatures of public models)" if claim["about"] else ""
        counts = ", ".join(f"{count} {verdict}" for verdict, count in claim["counts"].items())
        yield f"| {number} | {_escaped(claim['says'])}{about} | {claim['verdict']} | {counts} |\n"


def _escaped(text: str) -> str:
    return text.replace("|", "∣").replace("<", "&lt;")
