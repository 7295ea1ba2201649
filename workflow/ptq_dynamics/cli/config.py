"""`ptq-dynamics config`: the resolved configuration of a scale, and the keys of its files."""

import argparse
import sys

import yaml

from ptq_dynamics.cli import chosen
from ptq_dynamics.config import described


def options(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    chosen.add_scale(parser)
    parser.add_argument("--help-keys", metavar="FILE", nargs="?", const="", help="print its keys")
    parser.add_argument("--schema", metavar="FILE", help="print its JSON schema, for editors")


def run(arguments: argparse.Namespace) -> bool:
    """Print it as YAML, or what its files may hold."""
    if arguments.schema:
        print(described.schema(arguments.schema))
        return True
    if arguments.help_keys is not None:
        print(described.keys(arguments.help_keys or None))
        return True
    content = chosen.load({"scale": arguments.scale}).model_dump(mode="json", serialize_as_any=True)
    yaml.safe_dump(content, sys.stdout, sort_keys=False, allow_unicode=True)
    return True
