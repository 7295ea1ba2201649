"""The stage that writes tables of runs, of tasks, and of claims."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from ptq_dynamics.base import needs
from ptq_dynamics.claims.bootstrap import Bootstrap
from ptq_dynamics.claims.definitions import CLAIMS, Filled, Judged, MeasuredRow, TablesSettings
from ptq_dynamics.claims.formats import FORMATS, Cell, Number, Table
from ptq_dynamics.claims.samples import Sample, Samples
from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.labels import call
from ptq_dynamics.measure import names

# Places along a trajectory, as heads of columns name them.
BEFORE, END, LEVEL = "where it branches off", "end", "at equal loss"


def run(context: Context[TablesSettings]) -> Mapping[str, object]:
    """Write every table in every format; the fact is the number of rows by table."""
    settings = context.settings
    judged = json.loads(context.input(needs.CLAIMS).file(CLAIMS).read_text(encoding="utf-8"))
    rows, draws = dict[str, int](), dict[str, tuple[str, ...]]()
    for name, sets in (p for t in settings.tables for row in t.rows for p in row.draws.items()):
        draws[name] = max(draws.get(name, ()), sets, key=len)
    curves = Bootstrap(settings.series, settings.runs, draws, context.inputs)
    for filled in settings.tables:
        if filled.table.kind == "claims":
            table = of_claims(filled.table.title, judged["claims"])
        else:
            read = of_runs if filled.table.kind == "runs" else of_tasks
            table = read(filled, curves)
        rows[filled.name] = len(table.rows)
        for suffix, text in FORMATS.items():
            (context.out / f"{filled.name}.{suffix}").write_text(text(table), encoding="utf-8")
    return {"rows": rows}


def of_runs(filled: Filled, curves: Bootstrap) -> Table:
    """Return a table with loss and errors of each trajectory at some places."""
    shown = [row.name for row in filled.rows]
    branches = [name for name in shown if curves.trunks.get(name)]
    places = [BEFORE] * bool(branches) + [END]
    places += [LEVEL] * bool(filled.table.equal_loss and shown)
    called = call(filled.columns)
    columns, full = dict[str, tuple[str, str, str, int]](), names.FULL_PRECISION
    for place in places:
        if place != LEVEL:
            columns[f"Loss, {place}"] = place, full, names.LOSS, 1
        for name, label in called.items():
            columns[f"{label} error (%), {place}"] = place, name, names.QUANTIZATION_ERROR, 100
    if filled.table.carried:
        columns["Carried by the blocks (nats), end"] = END, full, names.CARRIED, 1
    rows = list[list[Cell]]()
    for row in filled.rows:
        samples = Samples(curves, row.seeds)
        tokens = curves.of(row.name, names.LOSS, full, row.seeds[0]).tokens[-1]
        cells: list[Cell] = [row.curve, row.name, int(tokens) if np.isfinite(tokens) else None]
        for place, quantizer, metric, factor in columns.values():
            is_apart = place == BEFORE and row.name not in branches
            if is_apart or quantizer not in (full, *row.draws):
                cells.append(None)
            elif place == LEVEL:
                cells.append(_number(factor * samples.at_loss(row.name, shown, quantizer)))
            else:
                sample = samples.at(row.name, quantizer, metric, share=float(place == END))
                cells.append(_number(factor * sample))
        rows.append(cells)
    return Table(filled.table.title, ["Curve", "Trajectory", "Tokens", *columns], rows)


def _number(sample: Sample) -> Number | None:
    value = float(sample[0])
    error = float(np.std(sample[1:]))
    return Number(value, error if np.isfinite(error) else None) if np.isfinite(value) else None


def of_tasks(filled: Filled, curves: Bootstrap) -> Table:
    """Return a table of final accuracies, and of their degradation under each quantizer."""
    called, heads = call(filled.columns), ["Curve", "Trajectory", "Quantizer", "Metric"]
    lines = list[dict[str, Cell]]()
    for row in filled.rows:
        metrics = [("full precision", names.ACCURACY, names.FULL_PRECISION)]
        shown = [quantizer.name for quantizer in filled.columns if quantizer.name in row.draws]
        metrics += [(called[name], names.DEGRADATION, row.draws[name][0]) for name in shown]
        for name, metric, draw in metrics:
            scores = curves.scores(row.name, metric, draw, row.seeds[0])
            known = row.curve, row.name, name, metric.replace("_", " ")
            line: dict[str, Cell] = dict(zip(heads, known, strict=True))
            line |= {task: Number(100 * a, 100 * error) for task, (a, error) in scores.items()}
            lines += [line] if scores else []
    tasks = sorted({*chain(*lines)} - {*heads}, key=lambda task: (task == names.MEAN, task))
    rows = [[*map(line.get, [*heads, *tasks])] for line in lines]
    return Table(filled.table.title, [*heads, *(f"{task} (%)" for task in tasks)], rows)


def of_claims(title: str, judged: Sequence[Judged]) -> Table:
    """Return a table of the numbers of all claims; the first row of a claim has its outcome."""
    rows = list[dict[str, Cell]]()
    for claim in judged:
        about = {"No.": str(claim["number"] or ""), "Claim": claim["says"]}
        seeds = claim.get("seeds_needed", "")
        why = claim.get("why") or (seeds and f"about {seeds} seeds would decide")
        about["Outcome"] = claim["outcome"] + (f" ({why})" if why else "")
        empty: MeasuredRow = {"says": "", "unit": "", "published": None}
        for place, row in enumerate(claim["rows"] or [empty]):
            numbers = {
                "Published": row["published"],
                "Measured": row.get("value"),
                "From": row.get("low"),
                "To": row.get("high"),
                "Smallest effect seen": row.get("smallest"),
            }
            if outcome := row.get("outcome"):
                about = {**about, "Outcome": f"deployed: {outcome}"}
            rows.append({**about, "Number": row["says"], "Unit": row["unit"] or "ratio"})
            rows[-1] |= {head: None if n is None else Number(n) for head, n in numbers.items()}
            is_alike = claim["expected"] == "alike" and place == 0 and "low" in row
            excluded = is_alike and not row.get("low", 0) <= 1 <= row.get("high", np.inf)
            rows[-1]["Remark"] = row.get("why", "") or "no change is excluded" * excluded
            about = dict.fromkeys(about, "")
    return Table(title, [*rows[0]] if rows else [], [[*row.values()] for row in rows])
