"""`ptq-dynamics trace`: the chain that a file comes from."""

import json
import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.graph import Plan
from ptq_dynamics.provenance.archive import Archive
from ptq_dynamics.provenance.genuine import Checked, mark, scale_of
from ptq_dynamics.provenance.sums import Places
from ptq_dynamics.provenance.trace import Chain, Step, lines, planned, trace

# Columns of a drawn tree.
WIDTH = 120
# Of the format of drawings, what loads a font; and what stands in its place.
FONT = re.compile(r"@font-face \{\{.*?\}\}\s*", re.S)
FAMILY = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
SAID: dict[Checked, str] = {
    "as published": "its bytes are those that were published",
    "different": "its bytes are not those that were published: it was changed since",
    "unknown": "its identity is as it carries it; its bytes were not checked",
}
UNCUT = 10_000  # of one that is printed: terminals wrap, and other tools cut nothing off


def find(path: str) -> Chain:
    """The chain of a file, by the records of all scales here: of one that is released, by those
    that are released with it, else by these where no others are left."""
    scale = scale_of(Path(path))
    if scale is not None:
        places = Places.of(scale)
        return trace(path, Archive.here([scale], first=(places.results, places.pictures)))
    chain = trace(path, Archive.here())
    if not chain.missing:
        return chain
    scales = {part for lacking in chain.missing for part in Path(lacking).parts[1:2]}
    return trace(path, Archive.here(scales))


def find_planned(plan: Plan, figure: str) -> Chain:
    """The chain of a figure before it is built."""
    if figure not in plan.site.config.figures:
        known = ", ".join(plan.site.config.figures)
        raise Problem(f"there is no figure {figure} at this scale; take one of {known}")
    return planned(plan.site, plan.figures.figure(figure))


def show(chain: Chain, *, as_json: bool, svg: Path | None) -> bool:
    """Print a chain as a tree, which may be drawn too, or as JSON; whether the file that was asked
    for has no other bytes than were published."""
    genuine = chain.checked != "different"
    if as_json and svg is not None:
        raise Problem("--json and --svg do not go together; leave one out")
    if as_json:
        steps = [step.content() for step in chain.steps.values()]
        content = {
            "top": chain.top,
            "bytes": chain.checked,
            "steps": steps,
            "missing": chain.missing,
        }
        print(json.dumps(content, indent=1, ensure_ascii=False))
        return genuine
    width = WIDTH if svg else UNCUT
    console = Console(
        record=svg is not None, width=width, markup=False, emoji=False, highlight=False
    )
    console.print(_tree(chain))
    for path in chain.missing:
        console.print(f"of {path} as it was then there is no record here")
    if chain.checked is not None:
        console.print(SAID[chain.checked])
    if svg is not None:
        text = console.export_svg(title=chain.top, code_format=_format(chain))
        try:
            svg.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Problem(f"{svg} cannot be written ({error.strerror})") from None
    return genuine


def _format(chain: Chain) -> str:
    """What a tree is drawn into: without a font from a host, with what the chain is of."""
    plain = FONT.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code, monospace", FAMILY)
    result = chain.steps[chain.top].result
    if result is None:
        return plain
    return plain.replace("    <style>", f"    <metadata>{mark(result)}</metadata>\n    <style>", 1)


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
