"""The verbs of `ptq-dynamics dev`. Each prints its findings, and returns whether all is well."""

import json
import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.definitions import CLAIMS, FOREST
from ptq_dynamics.claims.forest import forest, write
from ptq_dynamics.claims.formats import as_markdown
from ptq_dynamics.cli import chosen
from ptq_dynamics.cli.sweep import sweep as sweep
from ptq_dynamics.engine import specification
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import MEASUREMENTS, OF_BLOCKS
from ptq_dynamics.plan import Plan
from ptq_dynamics.plan.regimes import COLUMNS, beside
from ptq_dynamics.provenance import costs, state
from ptq_dynamics.provenance.archive import REFERENCE
from ptq_dynamics.provenance.released import folders

PAGE = Path("README.md")
BEGIN = "<!-- what came out: written by `ptq-dynamics dev readme` -->\n"
END = "<!-- end of what came out -->\n"
LONGEST = "constant-3e-3"  # the size of its model orders the scales
TOGETHER = Path("results", REFERENCE)


def accept(arguments: Namespace) -> bool:
    """Declare that outdated results of a folder, or of a manifest, are up to date."""
    if not arguments.reason.strip():
        raise Problem("--reason is empty; describe why the change makes no difference")
    plan, place = chosen.plan(arguments), arguments.result.resolve()
    jobs = [job for job in plan.site.needed(plan.last()) if job.paths.record.exists()]
    jobs = [job for job in jobs if job.paths.manifest.resolve().is_relative_to(place)]
    if not jobs:
        raise Problem(f"{place} has no result of this scale; name a manifest or a folder")
    stale = [job for job in jobs if specification.stale(job.spec, job.paths)]
    lines = state.accept(stale, arguments.reason)
    print("\n".join([*lines, f"{len(lines)} results were accepted: {arguments.reason}"]))
    return True


def claims(arguments: Namespace) -> bool:
    """Print the outcome and the first ratio of every claim."""
    site = chosen.plan(arguments).site
    if note := site.config.scale.note:
        print(f"{site.config.scale.description}: {note}")
    for claim in _judged(site.results, "claims", site.config.choice.scale)["claims"]:
        number, first = claim["number"] or "", (claim["rows"] or [{}])[0]
        numbers = claim.get("why", "")
        if "low" in first:
            numbers = f"{first['value']:.2f} [{first['low']:.2f}, {first['high']:.2f}]"
            numbers += f", published {first['published']}" if first["published"] else ""
        print(f"{number:>2}  {claim['outcome']:12}  {claim['name']:22} {numbers}")
    return True


def cost(arguments: Namespace) -> bool:
    """Write and print the tables of costs and resources of a scale."""
    plan = chosen.plan(arguments)
    print(*map(as_markdown, costs.write(plan, Path(plan.site.results))), sep="\n", end="")
    return True


def crate(arguments: Namespace) -> bool:
    """Write a crate of a scale's results."""
    from ptq_dynamics.provenance import crate

    count = crate.write(chosen.plan(arguments).site.config.choice.scale, arguments.place)
    print(f"{arguments.place} describes {count} jobs")
    return True


def readme(arguments: Namespace) -> bool:
    """Write the released outcomes into the README, and plot the claims of all released scales."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(f"{re.escape(BEGIN)}.*?{re.escape(END)}", text, re.S)
    if found is None:
        raise Problem(f"{PAGE} has no lines {BEGIN.strip()} and {END.strip()}; put them back")
    scales = released_scales()
    judged = (_judged(folders(scale)[0], "release", scale) for scale in scales)
    write(forest({each["scale"]: each["claims"] for each in judged}), TOGETHER)
    write_atomically(PAGE, text.replace(found[0], BEGIN + block(scales) + END))
    return True


def released_scales() -> list[str]:
    """Return names of the released scales, smaller models first."""
    names = [place.parent.name for place in TOGETHER.glob(f"*/{CLAIMS}")]
    if not names:
        raise Problem(f"{TOGETHER} contains no release; run make release")
    plans = {name: Plan(chosen.load(scale=name)) for name in names}
    return sorted(names, key=lambda name: plans[name].site.planned[LONGEST].parameters)


def block(scales: list[str]) -> str:
    """Return the README's plot of claims, and links to the releases."""
    parts = [f"![Claims at {' and '.join(scales)}]({TOGETHER / FOREST}.png)\n"]
    for scale in scales:
        results, drawn = folders(scale)
        links = f"[figures]({drawn}/README.md), [all numbers]({results}/tables/claims.md)"
        parts.append(f"- Scale {scale}: {links}")
    return "\n".join([*parts, ""])


def regime(arguments: Namespace) -> bool:
    """Print the dimensionless numbers of every run beside the paper's."""
    plan, titles = chosen.plan(arguments), [name.replace("_", "\n") for name in COLUMNS]
    table = Table("run", *titles, box=None, padding=(0, 1, 0, 0))
    for each in beside(plan.site.planned, Plan(chosen.load(scale="paper")).site.planned):
        cells = []
        for here, theirs, is_unlike in each["cells"]:
            published = f" ({theirs})" if theirs not in (None, here) else ""
            cells.append(f"{here or '-'}{published}{' !' * is_unlike}")
        table.add_row(each["run"], *cells)
    Console(width=180).print(table)
    print("In brackets: the value of scale paper, if different. !: the values are not alike.")
    _print_carried(plan)
    for name, reason in plan.site.config.scale.regime.left_out.items():
        print(f"left out: {name} ({reason})")
    return True


def _print_carried(plan: Plan) -> None:
    """Print the loss that the blocks of every run carry at its end, built or released."""
    places = (Path(plan.site.results), folders(plan.site.config.choice.scale)[0])
    for path in filter(Path.is_file, (place / MEASUREMENTS for place in places)):
        table = measurements.read(path).loc[lambda rows: rows.metric.isin(OF_BLOCKS)]
        if not table.empty:
            means = table.pivot_table(index="trajectory", columns="metric", values="value")
            means["layers"] = [plan.site.planned[name].shape.model.layers for name in means.index]
            print("carried: nats of loss that all blocks carry, and one alone; gain: rms × √inputs")
            print(f"({path}, means over seeds)\n{means.round(2).to_string()}")
            return


def _judged(folder: str | Path, target: str, scale: str) -> Mapping[str, Any]:
    """Read the outcomes of a scale's claims; raises `Problem` if the file is missing."""
    path = Path(folder, CLAIMS)
    if not path.is_file():
        raise Problem(f"{path} is missing; run make {target} SCALE={scale}")
    return dict(json.loads(path.read_text(encoding="utf-8")))
