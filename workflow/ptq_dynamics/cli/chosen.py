"""The configuration of the project in this folder, as a command line chooses it."""

import argparse
from pathlib import Path

from ptq_dynamics import config
from ptq_dynamics.graph import Plan


def load(**given: str | None) -> config.Config:
    """Configuration as the files have it, but for what the command line gives."""
    folder = Path("config")
    choice = config.read_yaml(folder / "config.yaml")
    changes = {key: value for key, value in given.items() if value is not None}
    return config.load(choice | changes, folder)


def plan(arguments: argparse.Namespace) -> Plan:
    """The plan of the chosen configuration."""
    names = ("scale", "figures", "more_seeds")
    return Plan(load(**{name: getattr(arguments, name, None) for name in names}))
