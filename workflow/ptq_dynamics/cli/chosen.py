"""Configuration chosen on the command line, and projects in other folders."""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ptq_dynamics import config
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import checkout
from ptq_dynamics.plan import Plan

FOLDER = Path("config")


def load(**given: str | None) -> config.Config:
    """Load the configuration; values on the command line override config/config.yaml."""
    return config.load(_choice(given), FOLDER)


def _choice(given: Mapping[str, str | None]) -> dict[str, Any]:
    changes = {key: value for key, value in given.items() if value is not None}
    return {**config.read_yaml(FOLDER / "config.yaml"), **changes}


def plan(arguments: argparse.Namespace) -> Plan:
    """Return the plan of the chosen configuration."""
    names = ("scale", "figures", "more_seeds", "deep")
    choice = _choice({name: getattr(arguments, name, None) for name in names})
    return Plan(config.load(choice, FOLDER), Path(os.path.relpath(checkout.ROOT)))


def write(file: Path, content: Any) -> None:
    """Write a file of a project's configuration."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    file.write_text(text, encoding="utf-8")


def profile(name: str) -> Path:
    """Return the place of a Snakemake profile, by its name in profiles/ or by a path."""
    own = checkout.ROOT / "profiles"
    places = [each for each in (own / name, Path(name)) if each.exists()]
    config.require("--profile", "profile", [] if places else [name], sorted(os.listdir(own)))
    return places[0].absolute()


def build(folder: Path, targets: Iterable[str], profile: Path) -> None:
    """Build the project in a folder under a profile; raises `Problem` if the build fails."""
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    command = [snakemake, "-s", str(checkout.ROOT / "Snakefile")]
    command += ["--workflow-profile", str(profile), "--", *targets]
    environment = {**os.environ, **checkout.environment()}
    if profile.name != "default":  # it may need the packages for SLURM
        environment["PYTHONPATH"] += f"{os.pathsep}{checkout.ROOT / '.venv/slurm'}"
    if subprocess.call(command, cwd=folder, env=environment):
        raise Problem("the build failed (see above); to resume it, run the same command again")
