"""`ptq-dynamics trace`: the chain that a file comes from."""

import argparse
import json
from dataclasses import asdict

from ptq_dynamics.provenance.archive import Archive, Result
from ptq_dynamics.provenance.trace import trace


def options(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    words = "a file of a result, a picture from anywhere, or measurements.csv:ROW (1: below heads)"
    parser.add_argument("path", help=words)
    parser.add_argument("--json", action="store_true", help="with all that records say")


def run(arguments: argparse.Namespace) -> bool:
    """Print a chain as a tree or as JSON; whether the file has the bytes that its record lists."""
    chain = trace(arguments.path, Archive.here())
    if arguments.json:
        steps = [
            {"manifest": path, "reads": chain.inputs(each), **asdict(each.record)}
            for path, each in reversed([*chain.results.items()])
        ]
        content = {"top": chain.top.path, "is_verified": chain.is_verified, "steps": steps}
        print(json.dumps({**content, "missing": chain.missing}, indent=1, ensure_ascii=False))
        return chain.is_verified
    for depth, result, again in chain.lines():
        print("  " * depth + (f"{result.label} (as above)" if again else _line(result)))
    for path in chain.missing:
        print(f"of {path} as it was then there is no record here")
    was = "those that were published" if chain.is_verified else "not those that were published"
    print(f"the bytes of {arguments.path} are {was}")
    return chain.is_verified


def _line(result: Result) -> str:
    account, commit = result.record, "no commit"
    if account.git is not None:
        commit = account.git.commit[:10] + (" with changes" if account.git.dirty else "")
    accepted = "".join(f"  accepted: {each.reason}" for each in account.accepted)
    where = account.device.name or account.machine.processor
    return (
        f"{result.label}  {result.digest[:10]}  code {commit}  {account.started[:16]}  "
        f"{account.seconds:.1f} s  {where}{accepted}"
    )
