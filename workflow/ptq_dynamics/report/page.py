"""The stage that makes the page: one file that opens from disk, with all that it shows inside."""

import base64
import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from jinja2 import Environment, StrictUndefined

from ptq_dynamics.claims.formats import ERROR, Cell, Number, Table
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.record import Record
from ptq_dynamics.figures.settings import TABLE
from ptq_dynamics.provenance import costs
from ptq_dynamics.provenance.archive import Archive, Result
from ptq_dynamics.report.planning import PAGE, Article, PageSettings

CLAIMS = "claims"  # the table of them


def run(context: Context[PageSettings]) -> Mapping[str, Any]:
    """Write the page; facts: how many figures it has, and its size in bytes.

    All comes from the inputs, but for times, commits and machines, which are those of records.
    """
    settings = context.settings
    manifests = [each for group in context.inputs.values() for each in group]
    results, missing = Archive([]).follow({str(each.path): each.digest() for each in manifests})
    tables = {name: _table(context.input("tables"), name, title) for name, title in settings.tables}
    claims = _claims(tables.pop(CLAIMS)) if CLAIMS in tables else ()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    text = environment.from_string(settings.template).render(
        description=settings.description,
        made=_made([each.record for each in results.values()], len(missing)),
        figures=[_figure(context.input(f"figure {each.name}"), each) for each in settings.figures],
        claims=list(claims),
        tables=list(tables.values()),
        cost=costs.table(each.record for each in results.values()),
        held={"jobs": {path: _job(each) for path, each in results.items()}},
    )
    (context.out / PAGE).write_text(text, encoding="utf-8")
    return {"figures": len(settings.figures), "bytes": len(text.encode())}


def _figure(drawn: Manifest, about: Article) -> dict[str, Any]:
    with drawn.file(f"{about.name}.{TABLE}").open(encoding="utf-8", newline="") as file:
        heads, *rows = csv.reader(file)
    return {
        **about.model_dump(),
        "manifest": str(drawn.path),
        "picture": base64.b64encode(drawn.file(f"{about.name}.png").read_bytes()).decode(),
        "points": {"heads": heads, "rows": rows},
    }


def _job(result: Result) -> dict[str, Any]:
    """A job as the page shows it in a trace."""
    account, git = result.record, result.record.git
    commit = f"{git.commit[:10]}{' with changes' if git.dirty else ''}" if git else "none"
    return {
        "label": result.label,
        "about": [
            f"digest {result.digest[:16]}",
            f"identity {account.identity[:16]}",
            f"commit {commit}",
            f"{account.started[:16]}, {account.seconds:.1f} s",
            account.device.name or account.machine.processor,
            *(f"accepted: {each.reason}" for each in account.accepted),
        ],
        "inputs": account.job["inputs"],
    }


def _made(records: Sequence[Record], missing: int) -> str:
    """The commits, machines and days of the results that the page shows, in a sentence."""
    days = sorted(each.started[:10] for each in records)
    commits = sorted({each.git.commit[:10] if each.git else "none" for each in records})
    machines = sorted({each.machine.processor for each in records})
    lost = f"; of {missing} more there is no record here" if missing else ""
    return (
        f"{len(records):,} results, made from {days[0]} to {days[-1]} by code of commit "
        f"{', '.join(commits)}, on {', '.join(machines)}{lost}."
    )


def _claims(shown: Table) -> Iterator[dict[str, Any]]:
    """Every claim with the rows of its inequalities, by the table of claims: number, words and
    verdict of a claim stand in its first row alone."""
    starts = [at for at, row in enumerate(shown.rows) if row[1]]
    for start, end in pairwise([*starts, len(shown.rows)]):
        number, says, verdict = shown.rows[start][:3]
        rows = [row[3:] for row in shown.rows[start:end]]
        inequalities = Table(f"Inequalities: {says}", shown.heads[3:], rows)
        yield {"number": number, "says": says, "verdict": verdict, "table": inequalities}


def _table(tables: Manifest, name: str, title: str) -> Table:
    """A table as its CSV has it; there, errors stand in the columns after their values."""
    with tables.file(f"{name}.csv").open(encoding="utf-8", newline="") as file:
        heads, *rows = csv.reader(file)
    errors = {ERROR.format(head) for head in heads}
    shown = [at for at, head in enumerate(heads) if head not in errors]

    def cell(row: Sequence[str], at: int) -> Cell:
        if ERROR.format(heads[at]) not in heads:
            return row[at]
        return Number(float(row[at]), float(row[at + 1] or "nan")) if row[at] else None

    return Table(
        title, [heads[at] for at in shown], [[cell(row, at) for at in shown] for row in rows]
    )
