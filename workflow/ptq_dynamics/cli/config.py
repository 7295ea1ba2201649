"""`ptq-dynamics config`: the resolved configuration of a scale."""

import argparse
import sys

import yaml

from ptq_dynamics.cli import chosen


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked."""
    chosen.add_scale(parser)


def run(arguments: argparse.Namespace) -> bool:
    """Print it as YAML."""
    content = chosen.load({"scale": arguments.scale}).model_dump(mode="json", serialize_as_any=True)
    yaml.safe_dump(content, sys.stdout, sort_keys=False, allow_unicode=True)
    return True
