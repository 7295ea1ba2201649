"""The command `ptq-dynamics`: what is not building. A verb is a module of this room, with what it
`run`s and its `options`, else a scale, figures and seeds; `dev` groups those of maintainers."""

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import checkout, signals

VERBS = {
    "status": "say which results are not fresh, and why; exit status 1 if any",
    "plan": "say what a build would run, by kind of job",
    "trace": "say what a file was made from, down to text and public checkpoints",
    "audit": "verify every byte, record and input of a scale; exit status 1 if any is wrong",
    "compare": "compare two tables of measurements, and name the first job that differs",
    "adopt": "take results over from another checkout or a released archive",
    "release": "write all that the repository keeps of a scale, from a clean commit",
    "config": "print the resolved configuration of a scale",
    "lock": "lock the revisions of public models to commits of the hub",
}
MAINTAINERS = {
    "accept": "declare that a change of code or libraries changes no result",
    "claims": "print the verdicts on what the paper says",
    "cost": "write the table of what a build cost, from its records",
    "crate": "write a Provenance Run Crate (RO-Crate) of a scale's results",
    "readme": "write what came out, as it is released, into the README",
    "regime": "compare a scale's runs with the paper's",
}


def main() -> int:
    """Run one verb; exit status 1 with one line when something is wrong."""
    signals.leave_at_once("error: interrupted; run the same command again")
    arguments = _parser(sys.argv[1:]).parse_args()
    # What a verb makes lives until it ends.
    gc.disable()
    try:
        checkout.check(Path())
        is_well = arguments.run(arguments)
        sys.stdout.flush()
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader, as `head`, has seen enough; Python would complain once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0 if is_well else 1


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    does = "What is not building: where results come from, whether they hold, and exchanging them."
    parser = argparse.ArgumentParser(prog="ptq-dynamics", description=does, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=version("ptq-dynamics"))
    names = [word for word in words if not word.startswith("-")]
    group = _add(parser, VERBS, names[:1])
    _add(group.add_parser("dev", help="what maintainers do"), MAINTAINERS, names[1:2])
    return parser


def _add(
    parser: argparse.ArgumentParser, verbs: Mapping[str, str], words: Sequence[str]
) -> "argparse._SubParsersAction[argparse.ArgumentParser]":
    """Add verbs; only the module of the one that is named is imported."""
    group = parser.add_subparsers(metavar="VERB", required=True)
    for name, does in verbs.items():
        verb = group.add_parser(name, help=does, description=does, allow_abbrev=False)
        if name in words:
            from ptq_dynamics.cli import chosen  # It imports all of the configuration.

            module = importlib.import_module(f"ptq_dynamics.cli.{name}")
            getattr(module, "options", chosen.add_choices)(verb)
            verb.set_defaults(run=module.run)
    return group
