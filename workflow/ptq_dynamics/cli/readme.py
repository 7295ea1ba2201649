"""The outcomes of the paper's claims, and the README's part on the released ones."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.definitions import CLAIMS, FOREST, Judged, Ladder
from ptq_dynamics.claims.forest import forest, save_plot
from ptq_dynamics.claims.formats import as_csv, as_markdown
from ptq_dynamics.claims.ladder import LADDER, ScalePoint, ladder_table, plot, points
from ptq_dynamics.cli import chosen
from ptq_dynamics.config import read_file
from ptq_dynamics.plan import Plan
from ptq_dynamics.provenance.archive import REFERENCE
from ptq_dynamics.provenance.released import folders

PAGE = Path("README.md")
BEGIN = "<!-- what came out: written by `ptq-dynamics dev readme` -->\n"
END = "<!-- end of what came out -->\n"
LONGEST = "constant-3e-3"  # the size of its model orders the scales
TOGETHER = Path("results", REFERENCE)


def update() -> None:
    """Write the released outcomes into the README, and plot the claims of all released scales."""
    text = PAGE.read_text(encoding="utf-8")
    earlier = re.search(f"{re.escape(BEGIN)}.*?{re.escape(END)}", text, re.S)
    if earlier is None:
        raise Problem(f"{PAGE} has no lines {BEGIN.strip()} and {END.strip()}; put them back")
    scales = released_scales()
    outcomes = {scale: released_claims(folders(scale)[0], "release", scale) for scale in scales}
    save_plot(forest({one["scale"]: one["claims"] for one in outcomes.values()}), TOGETHER)
    over = rungs({scale: outcome["claims"] for scale, outcome in outcomes.items()})
    if over:
        save_plot(plot(over), TOGETHER, LADDER)
        (TOGETHER / f"{LADDER}.csv").write_text(as_csv(ladder_table(over)), encoding="utf-8")
        (TOGETHER / f"{LADDER}.md").write_text(as_markdown(ladder_table(over)), encoding="utf-8")
    write_atomically(PAGE, text.replace(earlier[0], BEGIN + block(scales) + END))


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
    ladder: Ladder = read_file(Path("config/ladder.yaml"), "ladder")
    names = [*claims, *ladder.predictions, ladder.published_at]
    return [*points(ladder, {name: parameters(name) for name in names}, claims)]


def block(scales: list[str]) -> str:
    """Return the README's plots of claims and of the ladder, and links to the releases."""
    parts = [f"![Claims at {' and '.join(scales)}]({TOGETHER / FOREST}.png)\n"]
    for scale in scales:
        results, drawn = folders(scale)
        links = f"[figures]({drawn}/README.md), [all numbers]({results}/tables/claims.md)"
        parts.append(f"- Scale {scale}: {links}")
    if Path(TOGETHER, f"{LADDER}.png").exists():
        parts.append(f"\n![Claims over model sizes]({TOGETHER / LADDER}.png)")
    return "\n".join([*parts, ""])


def released_claims(folder: Path, target: str, scale: str) -> dict[str, Any]:
    """Read the outcomes of a scale's claims; raises `Problem` if the file is missing."""
    path = Path(folder, CLAIMS)
    if not path.is_file():
        raise Problem(f"{path} is missing; run make {target} SCALE={scale}")
    return dict(json.loads(path.read_text(encoding="utf-8")))
