"""`ptq-dynamics audit`: everything that lies in a scale's folders, verified."""

import argparse
import random
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen
from ptq_dynamics.graph.captions import PAGE
from ptq_dynamics.provenance import audit, costs, released
from ptq_dynamics.provenance.archive import Archive


def options(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    chosen.add_scale(parser)
    parser.add_argument("--rerun", type=int, default=0, metavar="N", help="also run N jobs again")
    parser.add_argument("--seed", type=int, help="of their choice; default: another each time")


def run(arguments: argparse.Namespace) -> bool:
    """Print what is wrong, a line each; whether all is well."""
    site = chosen.plan(arguments).site
    scale = site.config.choice.scale
    archive, wrong = Archive.of_scale(scale), list[str]()
    if archive.every or archive.damaged:
        others = [Path(site.pictures, PAGE), *costs.files(Path(site.results))]
        found = audit.audit(archive, others)
        print(
            f"{found.results:,} results with {found.files:,} files were hashed; {found.absent:,} "
            "files are known and not here"
        )
        wrong += [*found.wrong, *_rerun(archive, arguments)]
        for note in found.notes:
            print(f"note: {note}")
    sums = released.folders(scale)[0] / released.SUMS
    if sums.is_file():
        print(f"what is released was compared with {sums}")
        wrong += released.wrong(scale)
    elif not archive.every:
        raise Problem(f"nothing is built at scale {scale}; make figures SCALE={scale} builds it")
    for line in wrong:
        print(f"wrong: {line}")
    print(f"{len(wrong)} things are wrong" if wrong else "all is well")
    return not wrong


def _rerun(archive: Archive, arguments: argparse.Namespace) -> list[str]:
    """Make figures and tables, and a sample of other results, again; what differs."""
    again = {each.path: each for each in audit.derived(archive)}
    if arguments.rerun:
        seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
        print(f"the sample has seed {seed}")
        again |= {each.path: each for each in audit.sample(archive, arguments.rerun, seed)}
    wrong = list(audit.rerun([*again.values()]))
    print(f"{len(again)} results were made again; {len(again) - len(wrong)} came out as they are")
    return wrong
