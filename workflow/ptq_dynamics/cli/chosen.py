"""The configuration of the project in this folder, as a command line chooses it."""

from collections.abc import Mapping
from pathlib import Path

from ptq_dynamics import config


def load(given: Mapping[str, str | None]) -> config.Config:
    """Configuration as the files have it, but for what the command line gives."""
    folder = Path("config")
    choice = config.read_yaml(folder / "config.yaml")
    return config.load(
        choice | {k: value for k, value in given.items() if value is not None}, folder
    )
