"""`make sweep`: train candidates for the settings of a scale, and tabulate their losses.

Every candidate is a workflow of its own that imports this one, with the scale's file changed, and
draws losses in full precision alone: a choice between them sees no quantization error.
"""

import argparse
import os
import shutil
import subprocess
import sys
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
    import pandas as pd

    parser = argparse.ArgumentParser(prog="python -m ptq_dynamics.cli.sweep", description=__doc__)
    parser.add_argument("name", help="of a file in config/sweeps")
    folder = Path("results/sweep") / parser.parse_args().name
    table, rows = folder.with_suffix(".csv"), list[dict[str, Any]]()
    try:
        checkout.check(Path())
        file = Path(f"config/sweeps/{folder.name}.yaml")
        sweep = config.load_sweep(file)
        for name, changes in sweep.candidates.items():
            prepare(folder / name, sweep, changes)
            check(folder / name, sweep, file)
        for name in sweep.candidates:
            # An importing workflow does not take the profile by itself.
            snakemake = str(Path(sys.executable).with_name("snakemake"))
            command = [snakemake, "--workflow-profile", str(ROOT / "profiles/default"), "figures"]
            if status := subprocess.call(command, cwd=folder / name):
                return status
            rows.append({"candidate": name, **summary(folder / name, sweep)})
            pd.DataFrame(rows).to_csv(table, index=False, lineterminator="\n")
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    print(table.read_text(encoding="utf-8"))
    return 0


def check(folder: Path, sweep: config.Sweep, file: Path) -> None:
    """Raise `Problem` where a candidate cannot be planned or lacks a run of the sweep in `file`."""
    place = f"{file}: runs and trunk, for candidate {folder.name},"
    found = loaded(folder, sweep)
    runs = [name for name in found.runs.runs if name not in found.scale.regime.left_out]
    config.require(place, "run", compared(sweep), runs)
    Plan(found)


def loaded(folder: Path, sweep: config.Sweep) -> config.Config:
    """The configuration of a candidate."""
    choice = {"scale": sweep.scale, "seed": sweep.seed, "figures": "all"}
    return config.load(choice, folder / "config")


def prepare(folder: Path, sweep: config.Sweep, changes: dict[str, Any]) -> None:
    """Write the workflow of a candidate."""
    shutil.copytree("config", folder / "config", dirs_exist_ok=True)
    scale = Path(f"config/scales/{sweep.scale}.yaml")
    figures = {name: {**FIGURE, "curves": {name: [name]}} for name in compared(sweep)}
    files = {scale: merged(config.read_yaml(scale), changes), Path("config/figures.yaml"): figures}
    for file, content in files.items():
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        (folder / file).write_text(text, encoding="utf-8")
    choice = {"scale": sweep.scale, "seed": sweep.seed, "figures": "all"}
    snakefile = SNAKEFILE.format(root=os.path.relpath(ROOT, folder), choice=choice)
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
    found = {**about(plan, sweep.trunk), **{f"loss_{n}": f"{each:.4f}" for n, each in last.items()}}
    if sweep.trunk is None:
        return {**found, "mean": f"{mean(last.values()):.4f}"}
    stable = losses[sweep.trunk]
    end = max(stable)
    third = [loss for step, loss in stable.items() if end / 2 <= step < end * 3 / 4]
    quarter = [loss for step, loss in stable.items() if end * 3 / 4 <= step]
    found["stable_third_quarter"] = f"{mean(third):.4f}"
    return {**found, "stable_last_quarter": f"{mean(quarter):.4f}"}


def about(plan: Plan, trunk: str | None) -> dict[str, Any]:
    """Size of the main model of a candidate, and the regime of this run of it; without one, by what
    it has its public models in small."""
    scale = plan.site.config.scale
    if trunk is None:
        small: Any = scale.miniatures
        return {"rate_exponent": f"{small.rate_exponent:g}", "e_folds": f"{small.e_folds:g}"}
    main, found = scale.models["main"], dict(regimes(plan))[trunk]
    vocabulary = scale.whole(main.corpus).vocabulary
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


if __name__ == "__main__":
    sys.exit(main())
