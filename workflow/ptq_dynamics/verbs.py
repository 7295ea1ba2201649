"""The verbs of the command `ptq-dynamics`: what is not building."""

import argparse
import gc
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import yaml

from ptq_dynamics import config
from ptq_dynamics.hub.lock import LOCK, lock
from ptq_dynamics.jobs import checkout, fingerprint
from ptq_dynamics.jobs.current import Results
from ptq_dynamics.jobs.verified import Verifier
from ptq_dynamics.measure.names import MEASUREMENTS
from ptq_dynamics.plan import Plan
from ptq_dynamics.plan.captions import write_page
from ptq_dynamics.plan.due import Due
from ptq_dynamics.plan.outlook import look_ahead, to_lock
from ptq_dynamics.plan.regime import (
    Dimensionless,
    Rates,
    best_rates,
    peak_rate,
    regimes,
    rounded_tokens,
)
from ptq_dynamics.problem import Problem

NUMBERS = fields(Dimensionless)


def main() -> int:
    """Run one verb; exit status 1 with one line when something is wrong."""
    parser = argparse.ArgumentParser(prog="ptq-dynamics", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    show = verbs.add_parser("config", help="print the resolved configuration of a scale")
    show.add_argument("--scale", choices=config.SCALES, help="default: that of config.yaml")
    status = verbs.add_parser("status", help="say what a build would make; exit status 1 if any")
    status.add_argument("--scale", choices=config.SCALES, help="default: that of config.yaml")
    status.add_argument("--figures", help="default: those of config.yaml")
    status.add_argument("--more-seeds", help="default: those of config.yaml")
    status.add_argument("--deep", action="store_true", help="also read all bytes of results")
    status.add_argument("--quiet", action="store_true", help="say nothing unless all is current")
    status.add_argument(
        "--captions", action="store_true", help="where all is current, also do as `captions` does"
    )
    captions = verbs.add_parser("captions", help="write the page of captions beside the figures")
    captions.add_argument("--scale", choices=config.SCALES, help="default: that of config.yaml")
    captions.add_argument("--folder", type=Path, help="of the figures; default: the scale's")
    regime = verbs.add_parser("regime", help="compare a scale's runs with the paper's")
    regime.add_argument("--scale", choices=config.SCALES, help="default: that of config.yaml")
    outlook = verbs.add_parser("plan", help="say what a build from nothing takes")
    outlook.add_argument("--scale", choices=config.SCALES, help="default: that of config.yaml")
    outlook.add_argument("--figures", help="default: those of config.yaml")
    verbs.add_parser("lock", help="lock the revisions of public models to commits of the hub")
    verbs.add_parser("schema", help="write the JSON schemas of the files under config/")
    arguments = parser.parse_args()
    # What a verb makes lives until it ends.
    gc.disable()
    try:
        checkout.check(Path())
        match arguments.verb:
            case "config":
                _print_config(_load({"scale": arguments.scale}))
            case "status":
                choice = {"scale": arguments.scale, "figures": arguments.figures}
                choice |= {"more_seeds": arguments.more_seeds}
                choice |= {"deep": "true"} if arguments.deep else {}
                return _print_status(_load(choice), arguments.quiet, arguments.captions)
            case "captions":
                plan = Plan(_load({"scale": arguments.scale}))
                _write_captions(plan, arguments.folder or Path(plan.site.pictures))
            case "regime":
                _print_regime(_load({"scale": arguments.scale}))
            case "plan":
                choice = {"scale": arguments.scale, "figures": arguments.figures}
                _print_outlook(Plan(_load(choice)))
            case "lock":
                return _lock()
            case "schema":
                _write_schemas()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, as `head`, has seen enough; Python would complain once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


def _write_schemas() -> None:
    folder = Path("config/schemas")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in config.schemas().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


def _load(given: dict[str, str | None]) -> config.Config:
    """Configuration as the files have it, but for what the command line gives."""
    folder = Path("config")
    choice = config.read_yaml(folder / "config.yaml")
    given = {key: value for key, value in given.items() if value is not None}
    return config.load(choice | given, folder)


def _print_config(resolved: config.Config) -> None:
    content = resolved.model_dump(mode="json")
    for name, kind in resolved.quantizers.items():
        # Left out of a quantizer's own settings: a job has it beside them.
        if isinstance(kind, config.Calibrated):
            content["quantizers"][name]["draw"] = kind.draw
    yaml.safe_dump(content, sys.stdout, sort_keys=False, allow_unicode=True)


def _write_captions(plan: Plan, folder: Path) -> None:
    if not folder.is_dir():
        raise Problem(f"{folder} has no figures yet; make figures draws them")
    write_page(plan.site.config.figures, folder)


def _print_status(resolved: config.Config, quiet: bool, captions: bool) -> int:
    plan, verifier = Plan(resolved), Verifier(deep=resolved.choice.deep)
    current, due = Due(plan.site, Results(verifier)).find(plan.last())
    fingerprint.note_planned()
    if not due:
        print(f"nothing to do: all {len(current)} results are current")
        if captions:
            _write_captions(plan, Path(plan.site.pictures))
    elif not quiet:
        print(*sorted(f"due: {job.paths.folder / (job.paths.stem or '')}" for job in due), sep="\n")
        print(f"{len(due)} results are due, {len(current)} are current")
    return 1 if due else 0


def _print_outlook(plan: Plan) -> None:
    found = look_ahead(plan.site, plan.last())
    total = sum(found.jobs.values())
    kinds = ", ".join(f"{count:,} {name}" for name, count in found.jobs.items())
    print(f"{plan.site.config.scale.description}: {total:,} jobs from nothing: {kinds}")
    print(f"{found.on_device:,} of them compute on a GPU where there is one")
    if found.revisions:
        print(
            f"{found.revisions:,} checkpoints to download: {_bytes(found.locked_bytes)} by the lock"
        )
        if found.unlocked:
            print(
                f"  and about {_bytes(found.estimated_bytes)}, estimated by parameters, of "
                f"{found.unlocked:,} that are not in the lock; run ptq-dynamics lock"
            )
    if found.tokens:
        print(
            f"{found.tokens:,} tokens of public text to download, about "
            f"{_bytes(found.text_bytes)}, estimated by tokens; with {found.tokenizers} tokenizers"
        )
    if environments := found.jobs.get("environment"):
        print(f"environments of tools to install from the package index: {environments}")
    for name, reason in {
        **plan.site.config.scale.regime.left_out,
        **plan.site.config.runs.unknown,
    }.items():
        print(f"left out: {name} ({reason})")


def _bytes(count: int) -> str:
    return f"{count / 1e12:,.1f} TB" if count >= 1e11 else f"{count / 1e9:,.1f} GB"


def _lock() -> int:
    """Lock what a scale with the hub fetches; exit status 1 where some could not be resolved."""
    found = lock(to_lock(_load({"scale": "paper"})))
    print(f"{found.resolved} revisions are locked in {LOCK}")
    for line in (*found.moved, *(f"error: {failed}" for failed in found.failed)):
        print(line)
    return 1 if found.failed else 0


def _print_regime(resolved: config.Config) -> None:
    # `make figures` asks for the status each time, and what this takes is imported only here.
    from rich.console import Console
    from rich.table import Table

    here, paper = Plan(resolved), Plan(_load({"scale": "paper"}))
    theirs = dict(regimes(paper.site, paper.trajectories))
    titles = [field.name.replace("_per_", "\nper ").replace("_", " ") for field in NUMBERS]
    table = Table("run", "peak rate", "tokens", *titles, box=None, padding=(0, 1, 0, 0))
    for name, mine in regimes(here.site, here.trajectories):
        other = theirs.get(name)
        unlike = mine.unlike(other)
        rates = [
            peak_rate(each.site, each.trajectories, name)
            for each in (here, paper)[: 1 + bool(other)]
        ]
        tokens = [rounded_tokens(each.site, name) for each in (here, paper)[: 1 + bool(other)]]
        cells = [
            _beside(rates[0], rates[1] if other else None),
            f"{tokens[0]} ({tokens[1]})" if other else tokens[0],
        ]
        for field in NUMBERS:
            numbers = getattr(mine, field.name), getattr(other, field.name, None)
            cells.append(_beside(*numbers, marked=field.name in unlike))
        table.add_row(name, *cells)
    console = Console(width=156)
    console.print(table)
    console.print(
        f"{resolved.scale.description}, in brackets paper scale where it differs; !: not alike. "
        "e folds: sum of the shares that weight decay takes of the weights; timescale, warmup, "
        "cooldown, batch: shares of the run."
    )
    published = paper.site.config.scale.regime.final_losses
    groups = best_rates(paper.site, paper.trajectories, published)
    losses, source = _final_losses(here.site.results)
    console.print(f"final loss in full precision (peak rate over the best) by {source}:")
    for group in best_rates(here.site, here.trajectories, losses):
        console.print("; ".join([_over_the_best(group), *_beside_published(group, groups)]))
    for name, reason in resolved.scale.regime.left_out.items():
        console.print(f"left out: {name} ({reason})", markup=False)


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


def _final_losses(results: str) -> tuple[dict[str, float], str]:
    """Loss of every run's last checkpoint in full precision, as far as it is measured, in the
    scale's results or else in those kept for reference; and where it was."""
    from ptq_dynamics.measure import measurements

    own = Path(results) / MEASUREMENTS
    kept = own.parents[1] / "reference" / own.parent.name / MEASUREMENTS
    path = next((path for path in (own, kept) if path.exists()), None)
    if path is None:
        return {}, f"{own} or {kept}, neither of which is there"
    losses = measurements.full_precision_losses(measurements.read(path))
    return {name: by_step[max(by_step)] for name, by_step in losses.items()}, str(path)


def _beside(mine: float | None, theirs: float | None, marked: bool = False) -> str:
    texts = [
        "-" if n is None or math.isnan(n) else f"{n:.3g}" if n >= 1 else f"{n:.2g}"
        for n in (mine, theirs)
    ]
    told = texts[0] if texts[0] == texts[1] else f"{texts[0]} ({texts[1]})"
    return f"{told}{' !' if marked else ''}"
