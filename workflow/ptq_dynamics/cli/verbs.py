"""The verbs of the command `ptq-dynamics`: what is not building."""

import argparse
import gc
import sys
from pathlib import Path

import yaml

from ptq_dynamics import config
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import captions, status
from ptq_dynamics.cli.chosen import load
from ptq_dynamics.config.described import keys, schema
from ptq_dynamics.config.releases import to_lock
from ptq_dynamics.engine import checkout
from ptq_dynamics.graph import Plan
from ptq_dynamics.hub.lock import LOCK, lock


def main() -> int:
    """Run one verb; exit status 1 with one line when something is wrong."""
    arguments = _parser().parse_args()
    # What a verb makes lives until it ends.
    gc.disable()
    try:
        checkout.check(Path())
        ended = _run(arguments)
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0 if ended else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ptq-dynamics", description=__doc__, allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True)

    def add(name: str, does: str, *, scaled: bool = True) -> argparse.ArgumentParser:
        verb = verbs.add_parser(name, help=does, description=does, allow_abbrev=False)
        if scaled:
            verb.add_argument("--scale", help="a file under config/scales; default: of config.yaml")
        return verb

    verb = add("config", "print the resolved configuration of a scale, or what its files may have")
    verb.add_argument("--schema", metavar="FILE", help="print the JSON schema of a file: runs, ...")
    verb.add_argument(
        "--help-keys",
        nargs="?",
        const="",
        metavar="FILE",
        help="print all keys of files, or of one",
    )
    verb = add("status", "say which results are not fresh, and why; exit status 1 if any")
    verb.add_argument("--figures", help="default: those of config.yaml")
    verb.add_argument("--more-seeds", help="default: those of config.yaml")
    verb.add_argument("--deep", action="store_true", help="also read all bytes of results")
    verb.add_argument("--json", action="store_true", help="list every result, as JSON")
    verb.add_argument("--quiet", action="store_true", help="say nothing unless all is fresh")
    verb.add_argument(
        "--captions", action="store_true", help="where all is fresh, also do as `captions` does"
    )
    verb.add_argument(
        "--paper", action="store_true", help="also look at claims, tables and the paper"
    )
    verb.add_argument(
        "--watch", action="store_true", help="show how far the builds in this folder have come"
    )
    verb.add_argument(
        "--every", type=float, metavar="S", help="seconds between looks (2, in a log 30)"
    )
    verb = add("captions", "write the page of captions beside the figures")
    verb.add_argument("--folder", type=Path, help="of the figures; default: the scale's")
    add("regime", "compare a scale's runs with the paper's")
    verb = add("claims", "print the verdicts on what the paper says")
    verb.add_argument("--figures", help="default: those of config.yaml")
    verb.add_argument("--check", action="store_true", help="only check what claims and tables name")
    verb = add("paper", "typeset the paper over the figures, with the claims and tables it cites")
    verb.add_argument("--figures", help="default: those of config.yaml")
    verb.add_argument("--more-seeds", help="default: those of config.yaml")
    add("readme", "write what came out, as it is released, into the README")
    add("cost", "write the table of what a build cost, from its records")
    verb = add("trace", "say what a file was made from, down to text and public checkpoints")
    verb.add_argument(
        "path",
        help="a file of a result, a picture from anywhere, measurements.csv:ROW (1 is below the "
        "head), or, with --planned, a figure's name",
    )
    verb.add_argument("--planned", action="store_true", help="as it would be built")
    verb.add_argument("--json", action="store_true", help="with all settings and versions")
    verb.add_argument("--svg", type=Path, help="also draw the tree, to this file")
    verb = add("audit", "check every byte, record and input of a scale; exit status 1 if any fails")
    verb.add_argument("--rerun", type=int, default=0, metavar="N", help="also run N jobs again")
    verb.add_argument("--seed", type=int, help="of the choice of these; default: another each time")
    verb.add_argument("--sign", type=Path, metavar="KEY", help="sign the release (SSH private key)")
    verb.add_argument("--signers", type=Path, help="verify by this file of allowed signers")
    verb.add_argument("--signer", help="the one of them who has to have signed")
    verb = add("compare", "compare two tables of measurements, with what else lies there")
    verb.add_argument("one", type=Path, help="a folder of results, or measurements.csv")
    verb.add_argument("other", type=Path, help="the same of another build")
    verb.add_argument("--json", action="store_true", help="list every measurement, as JSON")
    verb = add("release", "write what is measured, without weights and texts, into one archive")
    verb.add_argument(
        "folder",
        type=Path,
        nargs="?",
        help="of the archive; default: all that the repository keeps of a scale, to its place",
    )
    verb.add_argument("--figures", help="default: those of config.yaml")
    verb.add_argument("--more-seeds", help="default: those of config.yaml")
    verb = add("adopt", "take results over from another checkout or a released archive")
    verb.add_argument(
        "place", help="a checkout, a folder with a release, an archive, or its https address"
    )
    verb.add_argument("--figures", help="default: those of config.yaml")
    verb.add_argument("--more-seeds", help="default: those of config.yaml")
    verb.add_argument("--sha256", help="of the archive")
    verb = add("accept", "declare that a change of code or libraries changes no result")
    verb.add_argument("result", type=Path, help="a manifest, or a folder with results")
    verb.add_argument("--figures", help="default: those of config.yaml")
    verb.add_argument("--more-seeds", help="default: those of config.yaml")
    verb.add_argument("--reason", required=True, help="why; it is kept in the records")
    verb = add("crate", "write a Provenance Run Crate (RO-Crate) of a scale's results")
    verb.add_argument("place", type=Path, help="a new folder, or a file that ends in .zip")
    verb.add_argument("--agent", help="who ran the jobs; default: the project's maintainers")
    verb.add_argument("--verify", action="store_true", help="compare the crate with what is here")
    add("lock", "lock the revisions of public models to commits of the hub", scaled=False)
    return parser


def _run(arguments: argparse.Namespace) -> bool:
    """Do what a verb is for; whether all is well."""
    choice = {key: getattr(arguments, key, None) for key in ("scale", "figures", "more_seeds")} | (
        {"deep": "true"} if getattr(arguments, "deep", False) else {}
    )
    match arguments.verb:
        case "config" if arguments.schema is not None:
            print(schema(arguments.schema))
        case "config" if arguments.help_keys is not None:
            print(keys(arguments.help_keys or None))
        case "config":
            _print_config(load(choice))
        case "status" if arguments.watch or arguments.every is not None:
            return _watch(arguments)
        case "status":
            given = arguments.quiet, arguments.json, arguments.captions, arguments.paper
            asked = status.Asked(*given)
            return status.show(Plan(load(choice)), asked)
        case "captions":
            captions.write(Plan(load(choice)), arguments.folder)
        case "regime":
            # `make figures` asks for the status each time; what this takes is imported here.
            from ptq_dynamics.cli import regime

            regime.show(load(choice))
        case "claims":
            from ptq_dynamics.cli import claims

            (claims.check if arguments.check else claims.show)(Plan(load(choice)))
        case "paper":
            from ptq_dynamics.cli import paper

            return paper.make(Plan(load(choice)))
        case "readme":
            from ptq_dynamics.cli import readme

            readme.write(Plan(load(choice)))
        case "cost":
            from ptq_dynamics.cli import costs

            costs.show(Plan(load(choice)))
        case "trace" | "audit" | "compare" | "adopt" | "accept" | "crate" | "release":
            return _check(arguments, choice)
        case "lock":
            return _lock()
    return True


def _watch(arguments: argparse.Namespace) -> bool:
    """Show builds at work, whatever they build."""
    if not arguments.watch:
        raise Problem("--every is of --watch; add that, or leave it out")
    others = {"verb", "watch", "every"}
    if given := [name for name, value in vars(arguments).items() if value and name not in others]:
        option = given[0].replace("_", "-")
        raise Problem(f"--watch shows all builds in this folder; leave out --{option}")
    from ptq_dynamics.cli import watch

    return watch.show(arguments.every)


def _check(arguments: argparse.Namespace, choice: dict[str, str | None]) -> bool:
    """Verbs about what was built, of which the imports take longer."""
    from ptq_dynamics.cli import audit, comparison, taking_over, trace

    match arguments.verb:
        case "trace":
            if arguments.planned:
                chain = trace.find_planned(Plan(load(choice)), arguments.path)
            else:
                chain = trace.find(arguments.path)
            return trace.show(chain, as_json=arguments.json, svg=arguments.svg)
        case "audit":
            given = arguments.rerun, arguments.seed, arguments.sign
            asked = audit.Asked(*given, arguments.signers, arguments.signer)
            return audit.show(Plan(load(choice)), asked)
        case "release":
            return taking_over.give(Plan(load(choice)), arguments.folder)
        case "adopt":
            return taking_over.take(choice, arguments.place, arguments.sha256)
        case "accept":
            return taking_over.declare(Plan(load(choice)), arguments.result, arguments.reason)
        case "crate":
            from ptq_dynamics.cli import crate

            plan = Plan(load(choice))
            if arguments.verify and arguments.agent:
                raise Problem("--agent is of a crate that is written; leave it or --verify out")
            if arguments.verify:
                return crate.check(plan, arguments.place)
            return crate.make(plan, arguments.place, arguments.agent)
        case "compare":
            return comparison.show(arguments.one, arguments.other, as_json=arguments.json)
    return True


def _print_config(resolved: config.Config) -> None:
    content = resolved.model_dump(mode="json", serialize_as_any=True)
    for name, kind in resolved.quantizers.items():
        # Left out of a quantizer's own settings: a job has it beside them.
        if isinstance(kind, config.Calibrated):
            content["quantizers"][name]["draw"] = kind.draw
    yaml.safe_dump(content, sys.stdout, sort_keys=False, allow_unicode=True)


def _lock() -> bool:
    """Lock what a scale with the hub fetches; whether all could be resolved."""
    paper = load({"scale": "paper"})
    found = lock(to_lock(paper.runs.public.values(), paper.scale))
    print(f"{found.resolved} revisions are locked in {LOCK}")
    for line in (*found.moved, *(f"error: {failed}" for failed in found.failed)):
        print(line)
    return not found.failed
