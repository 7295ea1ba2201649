"""The verbs of `ptq-dynamics dev`. Each prints its findings, and returns whether all is well."""

from math import inf
from pathlib import Path
from typing import Annotated

from typer import Option

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen
from ptq_dynamics.cli.chosen import Figures, Place, Scale, Seeds


def accept(
    result: Place,
    reason: Annotated[str, Option(help="why; it is kept in the records")],
    scale: Scale = None,
    figures: Figures = None,
    more_seeds: Seeds = None,
) -> bool:
    """Declare that a change of code or libraries changes no result.

    RESULT is a manifest, or a folder with results.

    Example: ptq-dynamics dev accept results/laptop/measure --scale laptop --reason 'a new name'"""
    from ptq_dynamics.engine.job import stale
    from ptq_dynamics.provenance import state

    if not reason.strip():
        raise Problem("--reason is empty; describe why the change makes no difference")
    plan = chosen.plan(scale=scale, figures=figures, more_seeds=more_seeds)
    place = result.resolve()
    jobs = [job for job in plan.site.needed(plan.targets()) if job.paths.record.exists()]
    jobs = [job for job in jobs if job.paths.manifest.resolve().is_relative_to(place)]
    if not jobs:
        raise Problem(f"{place} has no result of this scale; name a manifest or a folder")
    outdated = [job for job in jobs if stale(job.spec, job.paths)]
    lines = state.accept(outdated, reason)
    print("\n".join([*lines, f"{len(lines)} results were accepted: {reason}"]))
    return True


def claims(scale: Scale = None, figures: Figures = None, more_seeds: Seeds = None) -> bool:
    """Print the outcome and the first ratio of every claim.

    Example: ptq-dynamics dev claims --scale smoke"""
    from ptq_dynamics.cli import outcomes

    configured = chosen.load(scale=scale, figures=figures, more_seeds=more_seeds)
    name, about = configured.choice.scale, configured.scale
    if about.note:
        print(f"{about.description}: {about.note}")
    for claim in outcomes.released_claims(Path("results", name), "claims", name)["claims"]:
        number, first = claim["number"] or "", (claim["rows"] or [{}])[0]
        numbers = claim.get("why", "")
        if "low" in first:
            low, high = first["low"], first.get("high", inf)
            numbers = f"{first['value']:.2f} [{low:.2f}, {high:.2f}]"
            numbers += f", published {first['published']}" if first["published"] else ""
        print(f"{number:>2}  {claim['outcome']:12}  {claim['name']:22} {numbers}")
    return True


def cost(scale: Scale = None) -> bool:
    """Write the table of build costs, from the records of the results.

    Example: ptq-dynamics dev cost --scale smoke"""
    from ptq_dynamics.claims.formats import as_markdown
    from ptq_dynamics.provenance import costs

    name = chosen.load(scale=scale).choice.scale
    print(as_markdown(costs.write_costs(name, Path("results", name))), end="")
    return True


def crate(place: Place, scale: Scale = None) -> bool:
    """Write a Provenance Run Crate (RO-Crate) of a scale's results.

    PLACE is a new folder, or a file that ends in .zip.

    Example: ptq-dynamics dev crate crate.zip --scale laptop"""
    from ptq_dynamics.provenance import crate

    count = crate.write_crate(chosen.load(scale=scale).choice.scale, place)
    print(f"{place} describes {count} jobs")
    return True


def outcomes() -> bool:
    """Plot the claims of all released scales, which README shows.

    Example: ptq-dynamics dev outcomes"""
    from ptq_dynamics.cli import outcomes

    outcomes.draw()
    return True


def regime(scale: Scale = None) -> bool:
    """Compare the dimensionless numbers of a scale's runs with the paper's.

    Example: ptq-dynamics dev regime --scale laptop"""
    from ptq_dynamics.claims.formats import Cell, Table, as_markdown
    from ptq_dynamics.plan import Plan
    from ptq_dynamics.plan.dimensionless import COLUMNS, beside_paper

    plan, rows = chosen.plan(scale=scale), list[list[Cell]]()
    for row in beside_paper(plan.site.planned, Plan(chosen.load(scale="paper")).site.planned):
        rows.append([row["run"]])
        for here, theirs, is_unlike in row["cells"]:
            published = f" ({theirs})" if theirs not in (None, here) else ""
            rows[-1].append(f"{here or '-'}{published}{' !' * is_unlike}")
    print(as_markdown(Table("Regime", ["run", *COLUMNS], rows)))
    print("In brackets: the value of scale paper, if different. !: the values are not alike.")
    for name, reason in plan.site.config.scale.regime.left_out.items():
        print(f"left out: {name} ({reason})")
    return True
