"""The stage that makes the page: one file that opens from disk, with all that it shows inside."""

import csv
import json
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from ptq_dynamics.claims.formats import ERROR, Cell, Number, Table
from ptq_dynamics.claims.settings import CLAIMS
from ptq_dynamics.engine.context import Context
from ptq_dynamics.paper import costs
from ptq_dynamics.report import assets, chain, drawn, said
from ptq_dynamics.report.frame import framed
from ptq_dynamics.report.markup import data, paragraph, table
from ptq_dynamics.report.settings import PAGE, PageSettings, Shown

TITLE = "Training dynamics and post-training quantization"
THINNED = (
    "Curves of {count} runs as they were logged, thinned to at most {most} records each, in "
    "{digits} digits. Choose a figure to see its runs."
)
ORIGINS = (
    "What every figure, the claims and the tables were made from, down to the text. Arrow keys "
    "move along the tree, Enter opens it; times, commits and machines are those of records."
)
# Of pictures, for a width of the page's letters.
PIXELS = 30
COST = "All jobs that lead to what is shown here, but for the one that made this page."


def run(context: Context[PageSettings]) -> Mapping[str, Any]:
    """Write the page; facts: how many figures it has, and its size in bytes.

    All comes from the inputs, but for times, commits and machines, which are those of records.
    """
    settings, inputs = context.settings, context.inputs
    files = assets.read(settings.assets)
    followed = chain.follow(chain.tops(inputs))
    results = list(followed.results.values())
    spent = costs.table(each.record for each in results)
    runs = {label: drawn.training(group) for label, group in inputs.items() if _is_run(label)}
    runs = {label: curve for label, curve in runs.items() if curve is not None}
    judged = json.loads(context.input("claims").file(CLAIMS).read_text(encoding="utf-8"))
    sections = {
        "figures": ("Figures", _figures(context)),
        "claims": ("Claims", said.claims(judged)),
        "tables": ("Tables", _tables(context)),
        "training": ("Training curves", _training(runs)),
        "provenance": ("Where it comes from", paragraph(ORIGINS) + '<div id="origins"></div>'),
        "cost": ("Cost", paragraph(COST) + table(spent, total=True)),
    }
    held = {
        "figures": {each.name: _drawn(context, each, runs) for each in settings.figures},
        "runs": runs,
        "palette": drawn.palette(),
        "chain": chain.content(followed),
    }
    text = framed(
        f"{TITLE}: {settings.description}",
        said.made(results, followed.missing),
        sections,
        _contents(settings.figures),
        files,
        data("held", held),
    )
    (context.out / PAGE).write_text(text, encoding="utf-8")
    return {"figures": len(settings.figures), "bytes": len(text.encode())}


def _is_run(label: str) -> bool:
    return label.startswith("run ")


def _drawn(context: Context[PageSettings], shown: Shown, runs: Mapping[str, Any]) -> dict[str, Any]:
    """What scripts know of a figure."""
    columns = drawn.table(context.input(f"figure {shown.name}"), shown.name)
    return {
        "title": shown.title,
        "columns": columns,
        "looks": drawn.looks(columns, shown.curves),
        "runs": [label for label in shown.runs if label in runs],
    }


def _figures(context: Context[PageSettings]) -> str:
    parts = list[str]()
    for group, members in groupby(context.settings.figures, key=lambda each: each.group):
        parts.append(f"<h3>{escape(group)}</h3>")
        parts += [_figure(context, each) for each in members]
    return "\n".join(parts)


def _figure(context: Context[PageSettings], shown: Shown) -> str:
    manifest, name = context.input(f"figure {shown.name}"), escape(shown.name)
    width, height = drawn.size(manifest, shown.name)
    says = escape(f"{shown.title}. {shown.caption}")
    return (
        f'<article class="figure" id="{name}" data-figure="{name}" aria-labelledby="{name}-title">'
        f'<h4 id="{name}-title">{name}: {escape(shown.title)}</h4><figure>'
        f'<button type="button" class="zoom" aria-label="Enlarge {name}">'
        f'<img src="{drawn.picture(manifest, shown.name)}" width="{width}" height="{height}" '
        f'style="max-width: {width // PIXELS}rem" alt="{says}"></button>'
        f"<figcaption>{escape(shown.caption)}</figcaption></figure>"
        f'<details class="values"><summary>Values: hover, zoom, step</summary></details>'
        f'<details class="data"><summary>Table of what is drawn</summary></details>'
        f'<p class="links"><a href="#provenance" class="origin">Where it comes from</a></p>'
        "</article>"
    )


def _tables(context: Context[PageSettings]) -> str:
    """The tables, as their job wrote them; that of claims has a section of its own."""
    manifest, parts = context.input("tables"), list[str]()
    for name, title in context.settings.tables:
        with manifest.file(f"{name}.csv").open(encoding="utf-8", newline="") as file:
            heads, *rows = csv.reader(file)
        if rows and name != "claims":
            parts.append(table(_read(title, heads, rows)))
    return "\n".join(parts) or paragraph("No table has a row for the chosen figures.")


def _read(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table as its CSV has it, where errors have columns of their own."""
    shown = [at for at, head in enumerate(heads) if not _is_error(heads, at)]
    cells = [[_cell(heads, row, at) for at in shown] for row in rows]
    return Table(title, [heads[at] for at in shown], cells)


def _is_error(heads: Sequence[str], at: int) -> bool:
    return at > 0 and heads[at] == ERROR.format(heads[at - 1])


def _cell(heads: Sequence[str], row: Sequence[str], at: int) -> Cell:
    if at + 1 < len(heads) and _is_error(heads, at + 1):
        return Number(float(row[at]), float(row[at + 1] or "nan")) if row[at] else None
    return int(row[at]) if row[at].isdecimal() else row[at]


def _training(runs: Mapping[str, Any]) -> str:
    if not runs:
        return paragraph("No run was trained for the chosen figures.")
    return (
        paragraph(THINNED.format(count=len(runs), most=drawn.MOST, digits=drawn.DIGITS))
        + '<div id="curves"></div>'
    )


def _contents(figures: Sequence[Shown]) -> dict[str, Sequence[tuple[str, str]]]:
    return {"figures": [(each.name, f"{each.name}: {each.title}") for each in figures]}
