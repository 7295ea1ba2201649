"""The stage that typesets the paper: its text, in Typst, with the figures, claims, tables and
records of a scale.

Fonts are those that the compiler brings, and the date is that of the newest input, so that equal
inputs give equal bytes on every machine.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.settings import ORIGIN
from ptq_dynamics.paper import history, sources
from ptq_dynamics.paper.contents import PICTURE, contents, label
from ptq_dynamics.paper.diagnostics import explained
from ptq_dynamics.paper.settings import DATA, PAPER, PaperSettings

REPOSITORY = Path(__file__).resolve().parents[3]


def run(context: Context[PaperSettings]) -> Mapping[str, Any]:
    """Write paper.pdf, and data.json with all that it cites; facts: how many figures it shows."""
    settings = context.settings
    # A record has them in another order than a plan.
    inputs = {key: context.input(key) for key in sorted(context.inputs)}
    folder = context.scratch / "text"
    shutil.rmtree(folder, ignore_errors=True)
    sources.copy(settings.sources, REPOSITORY, folder)
    drawn = [each.name for each in settings.figures if each.missing is None]
    folder.joinpath("figures").mkdir()
    for name in drawn:
        shutil.copyfile(picture(inputs[label(name)], name), folder / f"figures/{name}.{PICTURE}")
    made = history.read(inputs.values())
    content = contents(settings, inputs, made, context.identity)
    content["origin"] = ORIGIN.format(scale=settings.description, identity=context.identity)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / DATA).write_text(text + "\n", encoding="utf-8")
    (context.out / PAPER).write_bytes(compiled(folder, int(made.newest.timestamp())))
    shutil.copyfile(folder / DATA, context.out / DATA)
    return {"figures": len(drawn)}


def picture(manifest: Manifest, name: str) -> Path:
    """The picture of a figure; raises `Problem`, with the place in the text that shows it, where it
    is missing or damaged."""
    try:
        return manifest.file(f"{name}.{PICTURE}")
    except Problem as problem:
        place = next(iter(sources.places(REPOSITORY, name)), sources.FOLDER)
        raise Problem(f'{place}: #fig("{name}"): {problem}') from None


def compiled(folder: Path, timestamp: int) -> bytes:
    """The PDF of the text in a folder, dated by seconds since 1970; raises `Problem`, in one line
    with the place in the text, where it cannot be typeset as it is meant."""
    import typst

    known = json.loads((folder / DATA).read_text(encoding="utf-8"))
    keys = [*known["numbers"], *known["figures"], *known["claims"], *known["tables"]]
    compiler = typst.Compiler(
        str(folder / sources.MAIN), root=str(folder), ignore_system_fonts=True
    )
    try:
        made, warnings = compiler.compile_with_warnings(format="pdf", timestamp=timestamp)
    except typst.TypstError as error:
        raise Problem(explained(error.diagnostic, error.message, folder, keys)) from None
    for warning in warnings:
        raise Problem(explained(warning.diagnostic, warning.message, folder))
    if not isinstance(made, bytes):
        raise Problem(f"{sources.FOLDER}/{sources.MAIN} gives no single document; see there")
    return made
