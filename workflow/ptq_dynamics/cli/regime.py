"""`ptq-dynamics dev regime`: a scale's runs beside the paper's."""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ptq_dynamics.cli import chosen
from ptq_dynamics.figures.settings import rounded
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.regime import NUMBERS, Rates, best_rates, peak_rate, regimes, tokens_of
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import MEASUREMENTS


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked."""
    chosen.add_scale(parser)


def run(arguments: argparse.Namespace) -> bool:
    """Print the numbers without dimension of every run, and the losses at their ends."""
    here, paper = chosen.plan(arguments), Plan(chosen.load({"scale": "paper"}))
    scale, theirs = here.site.config.scale, dict(regimes(paper))
    titles = [name.replace("_per_", "\nper ").replace("_", " ") for name in NUMBERS]
    table = Table("run", "peak rate", "tokens", *titles, box=None, padding=(0, 1, 0, 0))
    for name, mine in regimes(here):
        other = theirs.get(name)
        sides = [here, paper] if other else [here]
        cells = [_beside([_number(peak_rate(each, name)) for each in sides])]
        cells.append(_beside([rounded(tokens_of(each, name)) for each in sides]))
        unlike = mine.unlike(other)
        for key in NUMBERS:
            both = [_number(getattr(each, key)) for each in (mine, other) if each]
            cells.append(f"{_beside(both)}{' !' * (key in unlike)}")
        table.add_row(name, *cells)
    console = Console(width=156)
    console.print(table)
    console.print(
        f"{scale.description}, in brackets paper scale where it differs; !: not alike. "
        "e folds: sum of the shares that weight decay takes of the weights; timescale, warmup, "
        "cooldown, batch: shares of the run."
    )
    groups = best_rates(paper, paper.site.config.scale.regime.final_losses)
    losses, source = _final_losses(Path(here.site.results) / MEASUREMENTS)
    console.print(f"final loss in full precision (peak rate over the best) by {source}:")
    for group in best_rates(here, losses):
        console.print("; ".join([_over_the_best(group), *_beside_published(group, groups)]))
    for name, reason in scale.regime.left_out.items():
        console.print(f"left out: {name} ({reason})", markup=False)
    return True


def _over_the_best(group: Rates) -> str:
    best = group[0][1]
    return ", ".join(f"{name} {loss:.3f} ({peak / best:.3g})" for loss, peak, name in group)


def _beside_published(group: Rates, published: list[Rates]) -> Iterator[str]:
    """The published losses of the same runs, and whether another of them is the best."""
    for other in published:
        names, others = ([name for _, _, name in each] for each in (group, other))
        mine, theirs = [n for n in names if n in others], [n for n in others if n in names]
        if mine:
            yield f"the paper's: {_over_the_best(other)}"
            if mine[0] != theirs[0]:
                yield f"not alike !: best is {mine[0]} ({theirs[0]})"


def _final_losses(own: Path) -> tuple[dict[str, float], str]:
    """Loss of every run's last checkpoint in full precision, as far as it is measured, in the
    scale's table or else in that kept for reference; and where it was."""
    kept = own.parents[1] / "reference" / own.parent.name / own.name
    path = own if own.exists() else kept
    if not path.exists():
        return {}, f"{own} or {kept}, neither of which is there"
    losses = measurements.full_precision_losses(measurements.read(path))
    return {name: by_step[max(by_step)] for name, by_step in losses.items()}, str(path)


def _beside(texts: list[str]) -> str:
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} ({texts[1]})"


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{3 if value >= 1 else 2}g}"
