"""The verbs of `ptq-dynamics dev`. Each prints its findings, and returns whether all is well."""

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen
from ptq_dynamics.cli.options import Figures, Place, Scale, Seeds

if TYPE_CHECKING:
    from ptq_dynamics.plan import Plan


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
    from ptq_dynamics.engine import specification
    from ptq_dynamics.provenance import state

    if not reason.strip():
        raise Problem("--reason is empty; describe why the change makes no difference")
    plan = chosen.plan(scale=scale, figures=figures, more_seeds=more_seeds)
    place = result.resolve()
    jobs = [job for job in plan.site.needed(plan.last()) if job.paths.record.exists()]
    jobs = [job for job in jobs if job.paths.manifest.resolve().is_relative_to(place)]
    if not jobs:
        raise Problem(f"{place} has no result of this scale; name a manifest or a folder")
    stale = [job for job in jobs if specification.stale(job.spec, job.paths)]
    lines = state.accept(stale, reason)
    print("\n".join([*lines, f"{len(lines)} results were accepted: {reason}"]))
    return True


def claims(scale: Scale = None, figures: Figures = None, more_seeds: Seeds = None) -> bool:
    """Print the outcome and the first ratio of every claim.

    Example: ptq-dynamics dev claims --scale smoke"""
    from ptq_dynamics.cli import readme

    configured = chosen.load(scale=scale, figures=figures, more_seeds=more_seeds)
    name, about = configured.choice.scale, configured.scale
    if about.note:
        print(f"{about.description}: {about.note}")
    for claim in readme.judged(Path("results", name), "claims", name)["claims"]:
        number, first = claim["number"] or "", (claim["rows"] or [{}])[0]
        numbers = claim.get("why", "")
        if "low" in first:
            low, high = first["low"], first.get("high", inf)
            numbers = f"{first['value']:.2f} [{low:.2f}, {high:.2f}]"
            numbers += f", published {first['published']}" if first["published"] else ""
        print(f"{number:>2}  {claim['outcome']:12}  {claim['name']:22} {numbers}")
    return True


def cost(scale: Scale = None, figures: Figures = None, more_seeds: Seeds = None) -> bool:
    """Write the table of build costs, from the records of the results.

    Example: ptq-dynamics dev cost --scale smoke"""
    from ptq_dynamics.claims.formats import as_markdown
    from ptq_dynamics.provenance import costs

    plan = chosen.plan(scale=scale, figures=figures, more_seeds=more_seeds)
    print(*map(as_markdown, costs.write(plan, Path(plan.site.results))), sep="\n", end="")
    return True


def crate(place: Place, scale: Scale = None) -> bool:
    """Write a Provenance Run Crate (RO-Crate) of a scale's results.

    PLACE is a new folder, or a file that ends in .zip.

    Example: ptq-dynamics dev crate crate.zip --scale laptop"""
    from ptq_dynamics.provenance import crate

    count = crate.write(chosen.load(scale=scale).choice.scale, place)
    print(f"{place} describes {count} jobs")
    return True


def readme() -> bool:
    """Write the released outcomes into the README.

    Example: ptq-dynamics dev readme"""
    from ptq_dynamics.cli import readme

    readme.update()
    return True


def regime(scale: Scale = None) -> bool:
    """Compare the dimensionless numbers of a scale's runs with the paper's.

    Example: ptq-dynamics dev regime --scale laptop"""
    from rich.console import Console
    from rich.table import Table

    from ptq_dynamics.plan import Plan
    from ptq_dynamics.plan.regimes import COLUMNS, beside

    plan, titles = chosen.plan(scale=scale), [name.replace("_", "\n") for name in COLUMNS]
    table = Table("run", *titles, box=None, padding=(0, 1, 0, 0))
    for row in beside(plan.site.planned, Plan(chosen.load(scale="paper")).site.planned):
        cells = []
        for here, theirs, is_unlike in row["cells"]:
            published = f" ({theirs})" if theirs not in (None, here) else ""
            cells.append(f"{here or '-'}{published}{' !' * is_unlike}")
        table.add_row(row["run"], *cells)
    Console(width=180).print(table)
    print("In brackets: the value of scale paper, if different. !: the values are not alike.")
    _print_carried(plan)
    for name, reason in plan.site.config.scale.regime.left_out.items():
        print(f"left out: {name} ({reason})")
    return True


def _print_carried(plan: "Plan") -> None:
    """Print the loss that the blocks of every run carry at its end, built or released."""
    from ptq_dynamics.measure import measurements
    from ptq_dynamics.measure.names import MEASUREMENTS, OF_BLOCKS
    from ptq_dynamics.provenance.released import folders

    places = (Path(plan.site.results), folders(plan.site.config.choice.scale)[0])
    for path in filter(Path.is_file, (place / MEASUREMENTS for place in places)):
        table = measurements.read(path).loc[lambda rows: rows.metric.isin(OF_BLOCKS)]
        if not table.empty:
            means = table.pivot_table(index="trajectory", columns="metric", values="value")
            means["layers"] = [plan.site.planned[name].shape.model.layers for name in means.index]
            print("carried: nats of loss that all blocks carry, and one alone; gain: rms × √inputs")
            print(f"({path}, means over seeds)\n{means.round(2).to_string()}")
            return
