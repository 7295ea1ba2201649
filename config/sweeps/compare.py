"""Train the candidates of a sweep, and tabulate their losses: `compare.py FILE.yaml`.

Each candidate is a project that measures no quantization errors, so they influence no choice."""

import shutil
import sys
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import yaml
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen
from ptq_dynamics.config import load, read_yaml
from ptq_dynamics.plan import Plan
from ptq_dynamics.provenance import released
from snakemake.utils import update_config

FIGURE = {
    "title": "Loss",
    "caption": "Of candidates.",
    "layout": "over_tokens",
    "metrics": ["loss"],
}


class Sweep(NamedTuple):
    """Changes of `candidates` to the file of a scale, and the `runs` that are trained with each."""

    scale: str
    seed: int
    runs: list[str]
    candidates: Mapping[str, Mapping[str, object]]


def prepare(folder: Path, sweep: Sweep, changes: Mapping[str, object]) -> Plan:
    """Write the project of a candidate; return its plan."""
    shutil.copytree("config", folder / "config", dirs_exist_ok=True)
    scale = f"config/scales/{sweep.scale}.yaml"
    changed = read_yaml(Path(scale))
    update_config(changed, changes)
    figures = {name: {**FIGURE, "curves": {name: [name]}} for name in sweep.runs}
    choice: dict[str, object] = {"scale": sweep.scale, "seed": sweep.seed, "figures": "all"}
    contents = {scale: changed, "config/figures.yaml": figures, "config/config.yaml": choice}
    for file, content in contents.items():
        (folder / file).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return Plan(load(choice, folder / "config"))


def numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Return the last value of each metric of each run, and its means over the last quarters."""
    table = table.sort_values("step")
    whose = [table.trajectory, table.metric]
    share = table.step / table.step.groupby(whose).transform("max")
    late = {"third_quarter": share.between(0.5, 0.75, "left"), "last_quarter": share >= 0.75}
    means = {name: table.value.where(is_in).groupby(whose).mean() for name, is_in in late.items()}
    return pd.DataFrame({"last": table.value.groupby(whose).last(), **means}).round(4)


def main(file: Path) -> None:
    """Build all candidates, and write and print the table. A candidate that fails ends no other."""
    sweep, folder, tables = Sweep(**read_yaml(file)), Path("results/sweep", file.stem), {}
    sources, failed = [Path.cwd()], list[str]()
    projects = {name: (folder / name).resolve() for name in sweep.candidates}
    # A mistake in the last candidate ends the sweep before the first one is trained.
    plans = {name: prepare(projects[name], sweep, sweep.candidates[name]) for name in projects}
    for name, plan in plans.items():
        project = projects[name]
        for source in (source for source in sources if (source / plan.site.results).is_dir()):
            with chdir(project):  # such as the text, which few candidates change
                released.adopt(plan, source, source)
        try:
            table = plan.measurements.collect().manifest
            chosen.build(project, [table], chosen.profile("default"))
        except Problem:
            failed.append(name)
            continue
        sources[1:] = [project]
        tables[name] = numbers(pd.read_csv(project / plan.site.results / "measurements.csv"))
        pd.concat(tables, names=["candidate"]).to_csv(folder.with_suffix(".csv"))
    if tables:
        print(folder.with_suffix(".csv").read_text(encoding="utf-8"))
    if failed:
        raise Problem(f"{', '.join(failed)} failed (see above)")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except Problem as problem:
        sys.exit(f"error: {problem}")
