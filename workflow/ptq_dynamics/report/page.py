"""The stage that writes the page: one file that opens from disk and contains all it shows."""

import base64
import csv
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from ptq_dynamics.base import needs
from ptq_dynamics.claims.definitions import FOREST
from ptq_dynamics.claims.formats import ERROR, Cell, Number, Table
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import RECORD, beside
from ptq_dynamics.figures.labels import SPANS, TABLE
from ptq_dynamics.figures.places import place
from ptq_dynamics.plan.paper_jobs import PageSettings
from ptq_dynamics.provenance import costs
from ptq_dynamics.provenance.archive import Archive, Result, at
from ptq_dynamics.provenance.trace import inputs_of

PAGE, CLAIMS = "index.html", "claims"  # the file, and the table of claims


def run(context: Context[PageSettings]) -> Mapping[str, object]:
    """Write the page; facts: how many figures it has, and its size in bytes."""
    settings = context.settings
    manifests = [result for group in context.inputs.values() for result in group]
    results, missing = Archive([]).follow({str(made.path): made.digest() for made in manifests})
    jobs = {
        path: {"label": result.label, "about": result.about, "inputs": [*result.record.inputs]}
        for path, result in results.items()
    }
    tables = {
        name: _table(context.input(needs.TABLES), name, title) for name, title in settings.tables
    }
    claims = list(_claims(tables.pop(CLAIMS))) if CLAIMS in tables else []
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    text = environment.from_string(settings.template).render(
        description=settings.description,
        made=_made(results.values(), len(missing)),
        figures=[_figure(context.input(needs.figure(key[0])), *key) for key in settings.figures],
        claims=claims,
        forest=_encoded(context.input(needs.CLAIMS).file(f"{FOREST}.png")) if claims else "",
        tables=list(tables.values()),
        cost=costs.cost_table(result.record for result in results.values()),
        held={"jobs": jobs},
    )
    (context.out / PAGE).write_text(text, encoding="utf-8")
    return {"figures": len(settings.figures), "bytes": len(text.encode())}


def _figure(drawn: Manifest, name: str, title: str, caption: str) -> dict[str, object]:
    """Return a figure and its points without empty columns, each with its place in the picture and
    the number of its inputs in `lineages`."""
    with drawn.file(f"{name}.{TABLE}").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    heads = [head for head in (rows or [{}])[0] if any(row[head] for row in rows)]
    job, lineages = at(beside(drawn.path, RECORD)).record.job, dict[tuple[str, ...], int]()
    of = [lineages.setdefault(inputs_of(row, job), len(lineages)) for row in rows]
    points = {"heads": heads, "rows": [[row[head] for head in heads] for row in rows]}
    points |= {"places": [place(row, drawn.facts[SPANS]) for row in rows]}
    points |= {"of": of, "lineages": [*lineages]}
    about = {"name": name, "title": title, "caption": caption, "manifest": str(drawn.path)}
    return {**about, "picture": _encoded(drawn.file(f"{name}.png")), "points": points}


def _encoded(picture: Path) -> str:
    return base64.b64encode(picture.read_bytes()).decode()


def _made(results: Collection[Result], missing: int) -> str:
    """Return a sentence with the commits, machines and days of the shown results."""
    days = sorted(result.record.started[:10] for result in results)
    commits = ", ".join(sorted({str(result.record.git or "none") for result in results}))
    machines = ", ".join(sorted({result.record.machine.processor for result in results}))
    lost = f"; of {missing} more there is no record here" if missing else ""
    made = f"{len(results):,} results, made from {days[0]} to {days[-1]}"
    return f"{made} by code of commit {commits}, on {machines}{lost}."


def _claims(shown: Table) -> Iterator[dict[str, object]]:
    """Yield each claim with its rows; only the first row has number, words and outcome."""
    starts = [at for at, row in enumerate(shown.rows) if row[1]]
    for start, end in pairwise([*starts, len(shown.rows)]):
        number, says, outcome = shown.rows[start][:3]
        rows = [row[3:] for row in shown.rows[start:end]]
        numbers = Table(f"Numbers: {says}", shown.heads[3:], rows)
        yield {"number": number, "says": says, "outcome": outcome, "table": numbers}


def _table(tables: Manifest, name: str, title: str) -> Table:
    """Return a table from its CSV, where errors have their own columns."""
    with tables.file(f"{name}.csv").open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        heads, rows = lines.fieldnames or (), list(lines)
    errors = {ERROR.format(head) for head in heads}
    shown = [head for head in heads if head not in errors]
    return Table(title, shown, [[_cell(row, head) for head in shown] for row in rows])


def _cell(row: Mapping[str, str], head: str) -> Cell:
    if (error := row.get(ERROR.format(head))) is None:
        return row[head]
    return Number(float(row[head]), float(error or "nan")) if row[head] else None
