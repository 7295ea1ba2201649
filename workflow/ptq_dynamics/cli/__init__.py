"""The command `ptq-dynamics`. A verb is a function of `verbs`, or `maintainers` for `dev`."""

import argparse
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import checkout, run

VERBS = {
    "measure": "measure how your own checkpoints change under quantization",
    "status": "print which results are missing or outdated, and why; exit status 1 if any",
    "plan": "count the jobs that a build would run, by kind",
    "trace": "print the lineage of a file, down to text and public checkpoints",
    "audit": "verify every byte, record and input of a scale; exit status 1 if any is wrong",
    "compare": "compare two tables of measurements, and name the first job that differs",
    "adopt": "import results from another checkout or a released archive",
    "release": "write the released files of a scale, from a clean commit",
    "config": "print the resolved configuration of a scale",
    "lock": "pin the revisions of public models to commits on the Hugging Face hub",
}
MAINTAINERS = {
    "accept": "declare that a change of code or libraries changes no result",
    "claims": "print the outcomes of the paper's claims",
    "cost": "write the table of build costs, from the records of the results",
    "crate": "write a Provenance Run Crate (RO-Crate) of a scale's results",
    "readme": "write the released outcomes into the README",
    "regime": "compare a scale's runs with the paper's",
    "sweep": "train candidates for the settings of a scale, and tabulate their losses",
}
EXAMPLES = {
    "measure": "~/runs/mine --last 4",
    "status": "--scale smoke --figures 'fig04 fig06'",
    "trace": "figures/laptop/fig04.png",
    "compare": "results/reference/laptop results/laptop",
    "adopt": "results/reference/laptop --scale laptop",
    "config": "--help-keys runs",
    "accept": "results/laptop/measure --scale laptop --reason 'a name changed'",
    "crate": "crate.zip --scale laptop",
    "sweep": "regime",
}
PLANNING = "status plan adopt release accept claims cost"
CONFIGURED = "default: the value in config/config.yaml"
OTHERS = {"nargs": "+", "choices": ["claims", "tables", "paper", "report"], "default": []}
FILE = {"type": Path}
FLAG = {"action": "store_true"}
# Name of an argument, the verbs with this argument, and options of `add_argument`.
ARGUMENTS: list[tuple[str, str, dict[str, Any]]] = [
    ("--scale", f"{PLANNING} audit config crate regime", {"help": CONFIGURED}),
    ("--scale", "measure", {"help": "use text and settings of this scale; default: own settings"}),
    ("--figures", PLANNING, {"help": CONFIGURED}),
    ("--more-seeds", PLANNING, {"help": CONFIGURED}),
    ("--json", "status plan trace compare", {**FLAG, "help": "print the complete result as JSON"}),
    ("--deep", "status", {"nargs": "?", "const": "1", "help": "also hash every file of results"}),
    ("--also", "status", {**OTHERS, "help": "check these besides figures"}),
    ("file", "trace", {**FILE, "help": "file of a result, lone picture, or TABLE.csv:ROW"}),
    ("--mermaid", "trace", {**FLAG, "help": "print the lineage as a Mermaid graph"}),
    ("--rerun", "audit", {"type": int, "default": 0, "metavar": "N", "help": "run N jobs again"}),
    ("--seed", "audit measure", {"type": int, "help": "seed of random choices"}),
    ("--scale", "compare", {"help": "compare results/SCALE of two checkouts"}),
    ("one", "compare", {**FILE, "help": "a folder of results, or measurements.csv"}),
    ("other", "compare", {**FILE, "help": "folder or table of the other build"}),
    ("source", "adopt", {**FILE, "help": "checkout, release folder, or release archive"}),
    ("--help-keys", "config", {"metavar": "FILE", "help": "print keys, as JSON schema: runs, ..."}),
    ("place", "measure", {"help": "folder of checkpoints, one checkpoint, or OWNER/NAME"}),
    ("--revisions", "measure", {"help": "branches of OWNER/NAME, as 'step*'", "metavar": "GLOB"}),
    ("--step", "measure", {"help": r"pattern of folder names; its group is the step: 'my-(\d+)'"}),
    ("--methods", "measure", {"nargs": "+", "help": "gptq rtn awq int8; default: gptq"}),
    ("--bits", "measure", {"nargs": "+", "type": int, "choices": range(2, 9), "help": "as 4 3"}),
    ("--average", "measure", {"type": int, "help": "checkpoints in each average; default: 5"}),
    ("--curvature", "measure", {**FLAG, "help": "also the Hessian's top eigenvalue and trace"}),
    ("--tasks", "measure", {"nargs": "+", "help": "also accuracy on tasks of config/tasks.yaml"}),
    ("--text", "measure", {"help": "text file, folder or data set; default: docstrings"}),
    ("--tokens", "measure", {"type": int, "help": "validation tokens; default: 32768"}),
    ("--tokens-per-step", "measure", {"type": float, "help": "tokens in a step of the run"}),
    ("--lr", "measure", {"help": "CSV file with step and lr, one rate, or trainer_state"}),
    ("--every", "measure", {"type": int, "metavar": "N", "help": "measure one checkpoint in N"}),
    ("--last", "measure", {"type": int, "metavar": "N", "help": "measure the last N checkpoints"}),
    ("--skip", "measure", {**FLAG, "help": "leave matrices unquantized that a method cannot take"}),
    ("--out", "measure", {**FILE, "help": "output folder; default: own/NAME"}),
    ("--profile", "measure", {"default": "default", "help": "Snakemake profile: slurm, or a path"}),
    ("result", "accept", {**FILE, "help": "a manifest, or a folder with results"}),
    ("--reason", "accept", {"required": True, "help": "why; it is kept in the records"}),
    ("place", "crate", {**FILE, "help": "a new folder, or a file that ends in .zip"}),
    ("name", "sweep", {"help": "of a file in config/sweeps"}),
]


def main() -> int:
    """Run a verb; return exit status 1 if anything is wrong."""
    run.end_at_once()
    arguments, rest = _parser().parse_known_args()
    if rest:
        arguments.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        if arguments.verb != "measure":
            _enter_project(arguments)
        checkout.check(Path())
        module = import_module(f"ptq_dynamics.cli.{arguments.module}")
        is_well = getattr(module, arguments.verb)(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # A reader such as `head` has closed the pipe. Python flushes once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Problem, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if is_well else 1


def _enter_project(arguments: argparse.Namespace) -> None:
    """Change to the nearest folder above with a configuration, and adapt relative paths."""
    here = Path.cwd()
    above = (each for each in (here, *here.parents) if (each / "config/config.yaml").is_file())
    home = next(above, here)
    for name, given in vars(arguments).items():
        if isinstance(given, Path):
            setattr(arguments, name, Path(os.path.normpath(here.relative_to(home) / given)))
    os.chdir(home)


def _parser() -> argparse.ArgumentParser:
    does = "Measure your own checkpoints; trace, verify and exchange results. Builds run with make."
    parser = argparse.ArgumentParser(prog="ptq-dynamics", description=does, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=version("ptq-dynamics"))
    group = _add(parser, VERBS, "verbs")
    _add(group.add_parser("dev", help="commands for maintainers"), MAINTAINERS, "maintainers")
    return parser


def _add(parser: argparse.ArgumentParser, verbs: Mapping[str, str], module: str) -> Any:
    group = parser.add_subparsers(metavar="VERB", required=True)
    for name, does in verbs.items():
        verb = group.add_parser(name, allow_abbrev=False, help=does, description=does)
        verb.epilog = f"example: {verb.prog} {EXAMPLES.get(name, '')}"
        if name == "measure":
            verb.usage = "%(prog)s PLACE [options]"
        for argument, takers, how in ARGUMENTS:
            if name in takers.split():
                verb.add_argument(argument, **how)
        verb.set_defaults(module=module, verb=name, error=verb.error)
    return group
