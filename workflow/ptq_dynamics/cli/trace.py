"""`ptq-dynamics trace`: the chain that a file comes from."""

import json
from pathlib import Path

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from ptq_dynamics.plan import Plan
from ptq_dynamics.problem import Problem
from ptq_dynamics.provenance.archive import Archive
from ptq_dynamics.provenance.trace import Chain, Step, lines, planned, trace

# Columns of a drawn tree.
WIDTH = 120
UNCUT = 10_000  # of one that is printed: terminals wrap, and other tools cut nothing off


def find(path: str) -> Chain:
    """The chain of a file, by the records of all scales here."""
    return trace(path, Archive.here())


def find_planned(plan: Plan, figure: str) -> Chain:
    """The chain of a figure before it is built."""
    if figure not in plan.site.config.figures:
        known = ", ".join(plan.site.config.figures)
        raise Problem(f"there is no figure {figure} at this scale; take one of {known}")
    return planned(plan.site, plan.figures.figure(figure))


def show(chain: Chain, *, as_json: bool, svg: Path | None) -> None:
    """Print a chain as a tree, which may be drawn too, or as JSON."""
    if as_json and svg is not None:
        raise Problem("--json and --svg do not go together; leave one out")
    if as_json:
        steps = [step.content() for step in chain.steps.values()]
        content = {"top": chain.top, "steps": steps, "missing": chain.missing}
        print(json.dumps(content, indent=1, ensure_ascii=False))
        return
    width = WIDTH if svg else UNCUT
    console = Console(
        record=svg is not None, width=width, markup=False, emoji=False, highlight=False
    )
    console.print(_tree(chain))
    for path in chain.missing:
        console.print(f"of {path} as it was then there is no record here")
    if svg is not None:
        try:
            svg.write_text(console.export_svg(title=chain.top), encoding="utf-8")
        except OSError as error:
            raise Problem(f"{svg} cannot be written ({error.strerror})") from None


def _tree(chain: Chain) -> Tree:
    open_: list[Tree] = []
    for depth, step, again in lines(chain):
        text = _line(step) if not again else f"{step.label} (as above)"
        del open_[depth:]
        shown = Text(text)
        open_.append(open_[-1].add(shown) if open_ else Tree(shown))
    return open_[0]


def _line(step: Step) -> str:
    if step.result is None:
        return step.label
    account = step.result.record
    commit = "no commit"
    if account.git is not None:
        commit = account.git.commit[:10] + (" with changes" if account.git.dirty else "")
    digest = account.output[step.manifest][:10]
    accepted = "".join(f"  accepted: {each.reason}" for each in account.accepted)
    where = account.device.name or account.machine.processor
    where += f", {account.by}" if account.processes else ""
    return (
        f"{step.label}  {digest}  code {commit}  {account.started[:16]}  "
        f"{account.seconds:.1f} s  {where}{accepted}"
    )
