"""`make sweep`: train candidates for the settings of a scale, and tabulate their losses.

Every candidate is a workflow of its own that imports this one, with the scale's file changed, and
draws losses in full precision alone: a choice between them sees no quantization error.
"""

import argparse
import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

from ptq_dynamics import config
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import checkout
from ptq_dynamics.engine.checkout import ROOT
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.regime import regimes
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import MEASUREMENTS

FOLDER = Path("results/sweep")
# An importing workflow does not take it by itself.
PROFILE = ROOT / "profiles/default"
SNAKEFILE = """# Made by make sweep.
module dynamics:
    snakefile: "{root}/workflow/Snakefile"
    config: {choice}

use rule * from dynamics
"""
# A figure each, since in one they might be too many to be told apart.
FIGURE = {
    "title": "Loss of a candidate",
    "caption": "In full precision.",
    "layout": "dynamics",
    "metrics": ["loss"],
}


def main() -> int:
    """Train every candidate that is not there yet; write and print the table of all."""
    parser = argparse.ArgumentParser(prog="python -m ptq_dynamics.cli.sweep", description=__doc__)
    parser.add_argument("name", help="of a file in config/sweeps")
    parser.add_argument("--table", type=Path, help="where it goes; results/sweep/NAME.csv")
    arguments = parser.parse_args()
    folder = FOLDER / arguments.name
    table = arguments.table or FOLDER / f"{arguments.name}.csv"
    try:
        checkout.check(Path())
        file = Path(f"config/sweeps/{arguments.name}.yaml")
        sweep = config.load_sweep(file)
        for name, changes in sweep.candidates.items():
            prepare(folder / name, sweep, changes)
            check(folder / name, sweep, file)
        rows = list[dict[str, Any]]()
        for name in sweep.candidates:
            snakemake = str(Path(sys.executable).with_name("snakemake"))
            command = [snakemake, "--workflow-profile", str(PROFILE), "--", "figures"]
            if status := subprocess.call(command, cwd=folder / name):
                return status
            rows.append({"candidate": name, **summary(folder / name, sweep)})
            with table.open("w", encoding="utf-8", newline="") as written:
                writer = csv.DictWriter(written, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    print(table.read_text(encoding="utf-8"))
    return 0


def check(folder: Path, sweep: config.Sweep, file: Path) -> None:
    """Raise `Problem` where a candidate cannot be planned or lacks a run of the sweep in `file`."""
    found = loaded(folder, sweep)
    runs = [name for name in found.runs.runs if name not in found.scale.regime.left_out]
    place = f"{file}: runs and trunk, for candidate {folder.name},"
    config.require(place, "run", compared(sweep), runs)
    Plan(found)


def choice(sweep: config.Sweep) -> dict[str, Any]:
    """What is built of every candidate."""
    return {"scale": sweep.scale, "seed": sweep.seed, "figures": "all"}


def loaded(folder: Path, sweep: config.Sweep) -> config.Config:
    """The configuration of a candidate."""
    return config.load(choice(sweep), folder / "config")


def prepare(folder: Path, sweep: config.Sweep, changes: Mapping[str, Any]) -> None:
    """Write the workflow of a candidate."""
    shutil.copytree("config", folder / "config", dirs_exist_ok=True)
    scale = Path(f"config/scales/{sweep.scale}.yaml")
    figures = {name: {**FIGURE, "curves": {name: [name]}} for name in compared(sweep)}
    files = {scale: merged(config.read_yaml(scale), changes), Path("config/figures.yaml"): figures}
    for file, content in files.items():
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        (folder / file).write_text(text, encoding="utf-8")
    snakefile = SNAKEFILE.format(root=os.path.relpath(ROOT, folder), choice=choice(sweep))
    (folder / "Snakefile").write_text(snakefile, encoding="utf-8")


def merged(content: Any, changes: Any) -> Any:
    """A mapping with changes at any depth."""
    if not isinstance(content, dict) or not isinstance(changes, dict):
        return changes
    return content | {key: merged(content.get(key), value) for key, value in changes.items()}


def compared(sweep: config.Sweep) -> list[str]:
    """The runs whose losses are tabulated, each once."""
    return list(dict.fromkeys((*sweep.runs, *filter(None, [sweep.trunk]))))


def summary(folder: Path, sweep: config.Sweep) -> dict[str, Any]:
    """What a candidate is, and its losses; of its trunk, mean losses of its third and its last
    quarter."""
    plan = Plan(loaded(folder, sweep))
    table = measurements.read(folder / plan.site.results / MEASUREMENTS)
    losses = measurements.full_precision_losses(table[table.seed == sweep.seed])
    last = {name: losses[name][max(losses[name])] for name in sweep.runs}
    ends = {f"loss_{name}": f"{loss:.4f}" for name, loss in last.items()}
    if sweep.trunk is None:
        return {**miniatures(plan), **ends, "mean": f"{mean(last.values()):.4f}"}
    return {**regime(plan, sweep.trunk), **ends, **halves(losses[sweep.trunk])}


def miniatures(plan: Plan) -> dict[str, Any]:
    """By what a candidate has its public models in small."""
    small = plan.site.config.scale.miniatures
    assert small is not None
    return {"rate_exponent": f"{small.rate_exponent:g}", "e_folds": f"{small.e_folds:g}"}


def regime(plan: Plan, trunk: str) -> dict[str, Any]:
    """Size of the main model of a candidate, and the regime of this run of it."""
    scale, main = plan.site.config.scale, plan.site.config.scale.models["main"]
    vocabulary = scale.whole(main.corpus).vocabulary
    found = dict(regimes(plan.site, plan.trajectories))[trunk]
    return {
        "width": main.width,
        "steps": scale.budget,
        "vocabulary": vocabulary,
        "peak_lr": f"{scale.regime.peak_lr:g}",
        "weight_decay": f"{scale.regime.weight_decay:g}",
        "parameters": main.parameters(vocabulary),
        "e_folds": f"{found.e_folds:.3g}",
        "tokens_per_parameter": f"{found.tokens_per_parameter:.3g}",
        "epochs": f"{found.epochs:.3g}",
    }


def halves(stable: Mapping[int, float]) -> dict[str, Any]:
    """Mean losses of a run in the third and the last quarter of its steps."""
    end = max(stable)
    third = [loss for step, loss in stable.items() if end / 2 <= step < end * 3 / 4]
    last = [loss for step, loss in stable.items() if end * 3 / 4 <= step]
    return {
        "stable_third_quarter": f"{mean(third):.4f}",
        "stable_last_quarter": f"{mean(last):.4f}",
    }


if __name__ == "__main__":
    sys.exit(main())
