"""`ptq-dynamics dev regime`: a scale's runs beside the paper's."""

import math
from argparse import Namespace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ptq_dynamics.cli import chosen
from ptq_dynamics.figures.settings import rounded
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.regime import NUMBERS, best_rates, peak_rate, regimes, tokens_of
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import MEASUREMENTS
from ptq_dynamics.provenance.released import folders


def regime(arguments: Namespace) -> bool:
    """Print the numbers without dimension of every run, and the losses at their ends."""
    here, paper = chosen.plan(arguments), Plan(chosen.load(scale="paper"))
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
    own = Path(here.site.results, MEASUREMENTS)
    path = own if own.exists() else folders(here.site.config.choice.scale)[0] / MEASUREMENTS
    console.print(f"final loss in full precision (peak rate over the best) by {path}:")
    if path.exists():
        losses = measurements.full_precision_losses(measurements.read(path))
        _print_rates("here", here, {name: steps[max(steps)] for name, steps in losses.items()})
    _print_rates("the paper's", paper, paper.site.config.scale.regime.final_losses)
    for name, reason in scale.regime.left_out.items():
        console.print(f"left out: {name} ({reason})", markup=False)
    return True


def _print_rates(whose: str, plan: Plan, losses: dict[str, float]) -> None:
    """Runs that differ in the peak rate alone, a line for each group, the best first."""
    for group in best_rates(plan, losses):
        best = group[0][1]
        print(
            f"{whose}:", ", ".join(f"{n} {loss:.3f} ({peak / best:.3g})" for loss, peak, n in group)
        )


def _beside(texts: list[str]) -> str:
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} ({texts[1]})"


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{3 if value >= 1 else 2}g}"
