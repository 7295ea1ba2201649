"""The command `ptq-dynamics`: what is not building."""

import argparse
import os
import sys
from pathlib import Path

import yaml
from rich.console import Console

from ptq_dynamics import config
from ptq_dynamics.jobs import checkout
from ptq_dynamics.problem import Problem


def main() -> int:
    """Run one verb; exit status 1 with one line when something is wrong."""
    parser = argparse.ArgumentParser(prog="ptq-dynamics", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    show = verbs.add_parser("config", help="print the resolved configuration of a scale")
    show.add_argument("--scale", choices=config.SCALES, help="default: that of config.yaml")
    verbs.add_parser("schema", help="write the JSON schemas of the files under config/")
    arguments = parser.parse_args()
    try:
        checkout.check(Path())
        match arguments.verb:
            case "config":
                _print_config(arguments.scale)
            case "schema":
                _write_schemas()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, as `head`, has seen enough; Python would complain once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Problem as problem:
        Console(stderr=True, soft_wrap=True, highlight=False).print(
            f"error: {problem}", markup=False
        )
        return 1
    return 0


def _write_schemas() -> None:
    folder = Path("config/schemas")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in config.schemas().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


def _print_config(scale: str | None) -> None:
    folder = Path("config")
    choice = config.read_yaml(folder / "config.yaml")
    resolved = config.load(choice | ({"scale": scale} if scale else {}), folder)
    yaml.safe_dump(
        resolved.model_dump(mode="json"), sys.stdout, sort_keys=False, allow_unicode=True
    )


if __name__ == "__main__":
    sys.exit(main())
