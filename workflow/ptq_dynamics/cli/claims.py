"""`ptq-dynamics dev claims`: the verdicts on what the paper says."""

import argparse
import json
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import CLAIMS
from ptq_dynamics.cli import chosen


def run(arguments: argparse.Namespace) -> bool:
    """Print a line for every claim: its verdict, and how many of its inequalities have which."""
    site = chosen.plan(arguments).site
    path = Path(site.results) / CLAIMS
    if not path.exists():
        scale = site.config.choice.scale
        raise Problem(f"{path} is missing; make claims SCALE={scale} judges the claims")
    for claim in read(path)["claims"]:
        number = "" if claim["number"] is None else claim["number"]
        about = f" [{', '.join(claim['about'])}]" if claim["about"] else ""
        print(f"{number:>2}  {claim['verdict']:14}  {claim['name']:22} {counted(claim)}{about}")
    return True


def counted(claim: dict[str, Any]) -> str:
    """How many inequalities of a claim have which verdict, in words."""
    return ", ".join(f"{count} {verdict}" for verdict, count in claim["counts"].items())


def read(path: Path) -> dict[str, Any]:
    """The content of a claims.json; raises `Problem` where the file holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if {"scale", "claims"} <= content.keys():
            return content  # type: ignore[no-any-return]
    except (ValueError, AttributeError):
        pass
    raise Problem(f"{path} is damaged; make claims writes it anew")
