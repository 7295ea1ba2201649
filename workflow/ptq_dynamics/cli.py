"""The command `ptq-dynamics`: what is not building."""

import argparse
import gc
import os
import sys
from dataclasses import fields
from pathlib import Path

import yaml

from ptq_dynamics import config
from ptq_dynamics.jobs import checkout, fingerprint
from ptq_dynamics.jobs.current import Results
from ptq_dynamics.jobs.verified import Verifier
from ptq_dynamics.measure.settings import MEASUREMENTS
from ptq_dynamics.plan import Plan
from ptq_dynamics.plan.captions import write_page
from ptq_dynamics.plan.due import Due
from ptq_dynamics.plan.regime import Dimensionless, best_rates, regimes
from ptq_dynamics.problem import Problem


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


def _print_regime(resolved: config.Config) -> None:
    # `make figures` asks for the status each time, and what this takes is imported only here.
    from rich.console import Console
    from rich.table import Table

    here, paper = Plan(resolved), Plan(_load({"scale": "paper"}))
    theirs = dict(regimes(paper.site, paper.trajectories))
    table = Table(
        "run", "peak rate", *(field.name.replace("_", " ") for field in fields(Dimensionless))
    )
    for name, mine in regimes(here.site, here.trajectories):
        other = theirs.get(name)
        unlike = mine.unlike(other) if other else set()
        cells = [_beside(_rate(here, name), _rate(paper, name) if other else None)]
        for field in fields(Dimensionless):
            numbers = getattr(mine, field.name), getattr(other, field.name, None)
            cells.append(_beside(*numbers, marked=field.name in unlike))
        table.add_row(name, *cells)
    console = Console(width=200)
    console.print(table)
    console.print(
        f"{resolved.scale.description}, in brackets paper scale; !: not alike. e folds: sum of the "
        "shares that weight decay takes of the weights; timescale, warmup, cooldown, batch: shares "
        "of the run."
    )
    for group in best_rates(here.site, here.trajectories, _final_losses(here.site.results)):
        best = group[0][1]
        told = ", ".join(f"{name} {loss:.3f} ({peak / best:.3g})" for loss, peak, name in group)
        console.print(
            f"final loss in full precision, as last measured (peak rate over the best): {told}"
        )
    for name, reason in resolved.scale.regime.left_out.items():
        console.print(f"left out: {name} ({reason})", markup=False)


def _final_losses(results: str) -> dict[str, float]:
    """Loss of every run's last checkpoint in full precision, as far as it is measured."""
    from ptq_dynamics.measure import measurements

    path = Path(results) / MEASUREMENTS
    losses = measurements.full_precision_losses(measurements.read(path)) if path.exists() else {}
    return {name: by_step[max(by_step)] for name, by_step in losses.items()}


def _rate(plan: Plan, name: str) -> float:
    return plan.trajectories.schedule(plan.site.config.runs.runs[name]).peak


def _beside(mine: float | None, theirs: float | None, marked: bool = False) -> str:
    texts = ["-" if number is None else f"{number:.3g}" for number in (mine, theirs)]
    return f"{texts[0]} ({texts[1]}){' !' if marked else ''}"


if __name__ == "__main__":
    sys.exit(main())
