"""The configuration of the project in this folder, as a command line chooses it."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from ptq_dynamics import config
from ptq_dynamics.graph import Plan

CHOICES = ("scale", "figures", "more_seeds")


def add_scale(parser: argparse.ArgumentParser) -> None:
    """Let a verb choose a scale."""
    parser.add_argument("--scale", choices=config.scales(), help="default: of config.yaml")


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Let a verb choose a scale, figures and further seeds."""
    add_scale(parser)
    for name in ("--figures", "--more-seeds"):
        parser.add_argument(name, help="default: those of config.yaml")


def load(given: Mapping[str, str | None]) -> config.Config:
    """Configuration as the files have it, but for what the command line gives."""
    folder = Path("config")
    choice = config.read_yaml(folder / "config.yaml")
    changes = {key: value for key, value in given.items() if value is not None}
    return config.load(choice | changes, folder)


def plan(arguments: argparse.Namespace) -> Plan:
    """The plan of the chosen configuration."""
    return Plan(load({name: getattr(arguments, name, None) for name in CHOICES}))
