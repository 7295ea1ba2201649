"""`ptq-dynamics claims`: the verdicts on what the paper says."""

import json
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import CLAIMS
from ptq_dynamics.graph import Plan


def check(plan: Plan) -> None:
    """Raise `Problem` where claims or tables name what the figures have not."""
    plan.claims.judge()
    plan.tables.write()


def show(plan: Plan) -> None:
    """Print a line for every claim: its verdict, and how many of its inequalities have which."""
    path = Path(plan.site.results) / CLAIMS
    if not path.exists():
        scale = plan.site.config.choice.scale
        raise Problem(f"{path} is missing; make claims SCALE={scale} judges the claims")
    for claim in read(path)["claims"]:
        print(_line(claim))


def read(path: Path) -> dict[str, Any]:
    """What a claims.json says; raises `Problem` where it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict) or not {"scale", "claims"} <= content.keys():
        raise Problem(f"{path} is damaged; make claims writes it anew")
    return content


def _line(claim: dict[str, Any]) -> str:
    number = "" if claim["number"] is None else claim["number"]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in claim["counts"].items())
    about = f" [{', '.join(claim['about'])}]" if claim["about"] else ""
    return f"{number:>2}  {claim['verdict']:14}  {claim['name']:22} {counts}{about}"
