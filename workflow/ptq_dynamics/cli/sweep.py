"""`ptq-dynamics dev sweep`: train and compare candidates for the settings of a scale.

Each candidate is a project that measures no quantization errors, so they influence no choice."""

import shutil
from contextlib import chdir
from pathlib import Path

import pandas as pd
from snakemake.utils import update_config

from ptq_dynamics import config
from ptq_dynamics.cli import chosen
from ptq_dynamics.engine import record
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import FULL_PRECISION, LOSS, MEASUREMENTS, OF_BLOCKS
from ptq_dynamics.plan import Plan
from ptq_dynamics.plan.regimes import regimes
from ptq_dynamics.provenance import released

WORDS = {"title": "Loss of a candidate", "caption": "In full precision."}
FIGURE: dict[str, object] = {**WORDS, "layout": "over_tokens", "metrics": ["loss"]}


def compare_candidates(name: str) -> str:
    """Train all candidates of a sweep; write and return the table of their losses."""
    sweep: config.Sweep = config.read_file(Path(f"config/sweeps/{name}.yaml"), "sweep")
    folder, rows = Path("results/sweep", name), list[dict[str, str]]()
    table = folder.with_suffix(".csv")
    plans = {
        name: candidate(folder / name, sweep, changes) for name, changes in sweep.candidates.items()
    }
    sources = [Path.cwd()]
    for name, plan in plans.items():
        for source in (place for place in sources if (place / plan.site.results).is_dir()):
            with chdir(folder / name):  # such as the text, which few candidates change
                released.adopt(plan, source, source)
        chosen.build(folder / name, [plan.measuring.collect().manifest], chosen.profile("default"))
        sources[1:] = [(folder / name).absolute()]
        losses = measurements.read_table(folder / name / plan.site.results / MEASUREMENTS)
        row = {"candidate": name, **_numbers(plan, sweep)}
        losses = losses[losses.seed == sweep.seed]
        row |= _losses(losses, sweep) | _carried(losses, sweep)
        job = plan.trajectories.train(sweep.trunk or sweep.runs[0], sweep.seed)
        steps, account = job.settings.last - job.settings.first, folder / name / job.paths.record
        row["seconds_per_step"] = f"{record.read(account).cpu_seconds / steps:.4f}"
        rows.append(row)
        pd.DataFrame(rows).to_csv(table, index=False, lineterminator="\n")
    return table.read_text(encoding="utf-8")


def candidate(folder: Path, sweep: config.Sweep, changes: dict[str, object]) -> Plan:
    """Write the project of a candidate; return its plan."""
    shutil.copytree("config", folder / "config", dirs_exist_ok=True)
    scale = Path(f"config/scales/{sweep.scale}.yaml")
    compared = filter(None, (*sweep.runs, sweep.trunk))
    figures = {name: {**FIGURE, "curves": {name: [name]}} for name in compared}
    changed = config.read_yaml(scale)
    update_config(changed, changes)
    choice = {"scale": sweep.scale, "seed": sweep.seed, "figures": "all"}
    contents = {str(scale): changed, "config/figures.yaml": figures, "config/config.yaml": choice}
    for file, content in contents.items():
        chosen.write(folder / file, content)
    return Plan(config.load(choice, folder / "config"))


def _numbers(plan: Plan, sweep: config.Sweep) -> dict[str, str]:
    """Return the size of a candidate's main model, and length and regime of its first run."""
    scale, regime = plan.site.config.scale, dict(regimes(plan.site.planned))[sweep.runs[0]]
    numbers = scale.models["main"].model_dump(include={"layers", "width"})
    numbers |= {"steps": scale.budget}
    numbers |= scale.regime.model_dump(include={"peak_lr_factor", "weight_decay_factor"})
    numbers["parameters"] = plan.site.planned[sweep.runs[0]].parameters
    numbers |= {key: getattr(regime, key) for key in ("e_folds", "tokens_per_parameter", "epochs")}
    return {name: f"{value:.5g}" for name, value in numbers.items()}


def _carried(table: pd.DataFrame, sweep: config.Sweep) -> dict[str, str]:
    """Return the loss that blocks carry at the end of trunk and first run, or else of each run."""
    ends = {name: name for name in sweep.runs}
    if sweep.trunk is not None:
        ends = {sweep.trunk: "stable", sweep.runs[0]: "decayed"}
    carried = dict[str, str]()
    for name, label in ends.items():
        rows = table[(table.trajectory == name) & table.metric.isin(OF_BLOCKS)]
        carried |= {f"{row.metric}_{label}": f"{row.value:.4f}" for row in rows.itertuples()}
    return carried


def _losses(table: pd.DataFrame, sweep: config.Sweep) -> dict[str, str]:
    """Return last losses, and mean losses of two quarters of the trunk, or else the mean."""
    rows = table[(table.metric == LOSS) & (table.quantizer == FULL_PRECISION)]
    losses = rows.pivot(index="step", columns="trajectory", values="value")
    last = losses.ffill().iloc[-1][list(sweep.runs)]
    means = {f"loss_{name}": loss for name, loss in last.items()}
    if sweep.trunk is None:
        means["mean"] = last.mean()
    else:
        stable = losses[sweep.trunk].dropna()
        quarter = 4 * stable.index / stable.index.max()
        means["stable_third_quarter"] = stable[(quarter >= 2) & (quarter < 3)].mean()
        means["stable_last_quarter"] = stable[quarter >= 3].mean()
    return {name: f"{loss:.4f}" for name, loss in means.items()}
