"""`ptq-dynamics adopt`: results of another checkout or of a release, taken over as they are."""

import argparse
from pathlib import Path

from ptq_dynamics.cli import chosen
from ptq_dynamics.provenance.adopting import adopt, unpacked
from ptq_dynamics.provenance.archive import DERIVED
from ptq_dynamics.provenance.state import find, shortened


def options(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    words = "a checkout, a folder with a release, or its archive"
    parser.add_argument("place", type=Path, help=words)
    chosen.add_choices(parser)


def run(arguments: argparse.Namespace) -> bool:
    """Take over what is up to date there; whether nothing is left to do but to draw figures."""
    plan = chosen.plan(arguments)
    with unpacked(arguments.place) as folder:
        taken, had, left = adopt(plan, folder)
    for each in left:
        print(f"{each.state:7}  {each.job}  {shortened(each.reasons)}")
    rest = [each for each in find(plan, plan.last()) if each.state != "fresh"]
    lacking = sum(1 for each in rest if not each.stage.startswith(DERIVED))
    print(
        f"{taken} results were taken over, {had} were here already, {lacking} are not "
        "there as they would be made here"
    )
    scale = plan.site.config.choice.scale
    if lacking:
        print(f"make figures SCALE={scale} makes those, and then what is drawn from them")
    elif rest:
        print(f"make figures SCALE={scale} draws {len(rest)} figures and tables from them")
    return not lacking
