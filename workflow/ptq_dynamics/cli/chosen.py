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
from ptq_dynamics.graph import Plan
from ptq_dynamics.report.planning import planned

FOLDER = Path("config")


def load(**given: str | None) -> config.Config:
    """Load the configuration; values on the command line override config/config.yaml."""
    return config.load(_choice(given), FOLDER)


def _choice(given: Mapping[str, str | None]) -> dict[str, Any]:
    changes = {key: value for key, value in given.items() if value is not None}
    return {**config.read_yaml(FOLDER / "config.yaml"), **changes}


def plan(arguments: argparse.Namespace) -> Plan:
    """Return the plan of the chosen configuration."""
    names = ("scale", "figures", "more_seeds")
    choice = _choice({name: getattr(arguments, name, None) for name in names})
    return planned(choice, FOLDER, Path(os.path.relpath(checkout.ROOT)))


def write(file: Path, content: Any) -> None:
    """Write a file of a project's configuration."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    file.write_text(text, encoding="utf-8")


def build(folder: Path, targets: Iterable[str], profile: str | None = None) -> None:
    """Build the project in a folder; raises `Problem` if the build fails."""
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    command = [snakemake, "-s", str(checkout.ROOT / "Snakefile"), "--workflow-profile"]
    command += [str(checkout.ROOT / "profiles" / (profile or "default")), "--", *targets]
    environment = {**os.environ, **checkout.environment()}
    if profile:  # its packages are in a folder of its name
        environment["PYTHONPATH"] += f"{os.pathsep}{checkout.ROOT / '.venv' / profile}"
    if subprocess.call(command, cwd=folder, env=environment):
        raise Problem("the build failed (see above); to resume it, run the same command again")
