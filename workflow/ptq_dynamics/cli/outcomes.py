"""The outcomes of the paper's claims, and pictures of the released ones."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.definitions import CLAIMS, Judged, Ladder
from ptq_dynamics.claims.forest import forest, save_plot
from ptq_dynamics.claims.formats import as_csv, as_markdown
from ptq_dynamics.claims.ladder import LADDER, ScalePoint, ladder_table, plot, points
from ptq_dynamics.cli import chosen
from ptq_dynamics.config import read_file
from ptq_dynamics.plan import Plan
from ptq_dynamics.provenance.archive import REFERENCE
from ptq_dynamics.provenance.released import folders

LONGEST = "constant-3e-3"  # the size of its model orders the scales
TOGETHER, RUNGS = Path("results", REFERENCE), Path("config/ladder.yaml")


def draw() -> None:
    """Plot the claims of all released scales, and their numbers over model sizes."""
    outcomes = {
        scale: released_claims(folders(scale)[0], "release", scale) for scale in released_scales()
    }
    claims = {scale: outcome["claims"] for scale, outcome in outcomes.items()}
    save_plot(forest({out["scale"]: out["claims"] for out in outcomes.values()}), TOGETHER)
    if over := rungs(claims):
        save_plot(plot(over, read_file(RUNGS, "ladder")), TOGETHER, LADDER)
        (TOGETHER / f"{LADDER}.csv").write_text(as_csv(ladder_table(over)), encoding="utf-8")
        (TOGETHER / f"{LADDER}.md").write_text(as_markdown(ladder_table(over)), encoding="utf-8")


def released_scales() -> list[str]:
    """Return names of the released scales, smaller models first."""
    names = [place.parent.name for place in TOGETHER.glob(f"*/{CLAIMS}")]
    if not names:
        raise Problem(f"{TOGETHER} contains no release; run make release")
    return sorted(names, key=parameters)


def parameters(scale: str) -> int:
    """Return how many parameters the main model of a scale has."""
    return Plan(chosen.load(scale=scale)).site.planned[LONGEST].parameters


def rungs(claims: Mapping[str, Sequence[Judged]]) -> list[ScalePoint]:
    """Return numbers over scales from their claims by name, as config/ladder.yaml lists them."""
    ladder: Ladder = read_file(RUNGS, "ladder")
    names = [*claims, *ladder.predictions, ladder.published_at]
    return [*points(ladder, {name: parameters(name) for name in names}, claims)]


def released_claims(folder: Path, target: str, scale: str) -> dict[str, Any]:
    """Read the outcomes of a scale's claims; raises `Problem` if the file is missing."""
    path = Path(folder, CLAIMS)
    if not path.is_file():
        raise Problem(f"{path} is missing; run make {target} SCALE={scale}")
    return dict(json.loads(path.read_text(encoding="utf-8")))
