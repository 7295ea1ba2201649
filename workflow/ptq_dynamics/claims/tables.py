"""The stage that writes tables of numbers: of runs, of tasks, and of claims."""

import json
from collections.abc import Mapping
from typing import Any

from ptq_dynamics.claims.estimates import over_draws
from ptq_dynamics.claims.formats import FORMATS, Cell, Number, Table
from ptq_dynamics.claims.readings import Readings
from ptq_dynamics.claims.settings import CLAIMS, Filled, Place, Row, RunsTable, TablesSettings, Term
from ptq_dynamics.claims.terms import Deviations, NotMeasured, Terms
from ptq_dynamics.claims.verdicts import over_seeds, relation
from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures import words
from ptq_dynamics.measure.names import ACCURACY, DEGRADATION, LOSS, MEAN, QUANTIZATION_ERROR

# Where a branch leaves its trunk: of a cooldown, the end of the stable phase.
BEFORE, END, LEVEL = "where it branches off", "end", "at equal loss"


def run(context: Context[TablesSettings]) -> Mapping[str, Any]:
    """Write every table in every format; facts: how many rows each has."""
    settings = context.settings
    readings = Readings(settings.series, settings.runs, context.inputs)
    judged = json.loads(context.input("claims").file(CLAIMS).read_text(encoding="utf-8"))
    deviations = judged["deviation_between_calibration_sets"]
    between = {(each["metric"], each["quantizer"]): each["value"] for each in deviations}
    rows = dict[str, int]()
    for filled in settings.tables:
        match filled.table.kind:
            case "runs":
                table = of_runs(filled, readings, between)
            case "tasks":
                table = of_tasks(filled, readings)
            case "claims":
                table = of_claims(filled.table.title, judged)
        rows[filled.name] = len(table.rows)
        for suffix, text in FORMATS.items():
            path = context.out / f"{filled.name}.{suffix}"
            path.write_text(text(table), encoding="utf-8")
    return {"rows": rows}


def of_runs(filled: Filled, readings: Readings, between: Deviations) -> Table:
    """A row a trajectory: loss in full precision and the error under every quantizer, where the
    phase before it ends, at its own end, and at equal loss."""
    names = tuple(row.name for row in filled.rows)
    places = {BEFORE: Place(end=0)} if any(row.starts for row in filled.rows) else {}
    places[END] = Place()
    if isinstance(filled.table, RunsTable) and filled.table.equal_loss and names:
        places[LEVEL] = Place(loss_of=names)
    called = words.call(filled.columns)
    columns = list[tuple[str, str, str | None]]()
    for place in places:
        columns += [(f"Loss, {place}", place, None)] if place != LEVEL else []
        columns += [(f"{called[q.name]} error (%), {place}", place, q.name) for q in filled.columns]
    rows = list[list[Cell]]()
    for row in filled.rows:
        points = readings.points(row.name, LOSS, None, row.seeds[0])
        tokens = points[-1].tokens if points else float("nan")
        rows.append([row.curve, row.name, int(tokens) if tokens == tokens else None])
        for _, place, quantizer in columns:
            known = place != BEFORE or row.starts
            known &= quantizer is None or bool(row.draws.get(quantizer))
            term = Term(of=(row.name,), at=places[place])
            cell = _value(term, row, quantizer, readings, between) if known else None
            rows[-1].append(cell)
    heads = ["Curve", "Trajectory", "Tokens", *(head for head, *_ in columns)]
    return Table(filled.table.title, heads, rows)


def _value(
    term: Term, row: Row, quantizer: str | None, readings: Readings, between: Deviations
) -> Number | None:
    """The mean over seeds and draws, with the larger of the paired error and the seeds' spread."""
    metric = LOSS if quantizer is None else QUANTIZATION_ERROR
    draws = () if quantizer is None else row.draws[quantizer]
    effects = []
    for seed in row.seeds:
        several = range(max(len(draws), 1))
        terms = (Terms(readings, metric, draws, seed, draw, between) for draw in several)
        try:
            values = [each.value(term) for each in terms]
        except NotMeasured:
            return None
        effects.append(over_draws(values, f"draws of seed {seed}"))
    found = over_seeds(effects)
    return Number(found.value, found.error, percent=quantizer is not None)


def of_tasks(filled: Filled, readings: Readings) -> Table:
    """A row for every trajectory and quantizer: the accuracy on every task at the end, in full
    precision, or how much of it is lost."""
    called = words.call(filled.columns)
    found = list[tuple[list[Cell], dict[str, Number]]]()
    for row in filled.rows:
        asked: list[tuple[str, str, str | None]] = [("full precision", ACCURACY, None)]
        asked += [
            (called[each.name], DEGRADATION, draws[0])
            for each in filled.columns
            if (draws := row.draws.get(each.name))
        ]
        for name, metric, draw in asked:
            scores = readings.scores(row.name, metric, draw, row.seeds[0])
            numbers = {task: Number(*score, percent=True) for task, score in scores.items()}
            if numbers:
                found.append(([row.curve, row.name, name, metric.replace("_", " ")], numbers))
    tasks = sorted({task for _, scores in found for task in scores}, key=lambda t: (t == MEAN, t))
    rows = [[*head, *map(scores.get, tasks)] for head, scores in found]
    heads = ["Curve", "Trajectory", "Quantizer", "Metric", *(f"{task} (%)" for task in tasks)]
    return Table(filled.table.title, heads, rows)


def of_claims(title: str, judged: Mapping[str, Any]) -> Table:
    """A row for every inequality of every claim, with the claim's verdict in its first."""
    rows = [
        _row(one, claim, is_first=not number)
        for claim in judged["claims"]
        for number, one in enumerate(claim["inequalities"])
    ]
    return Table(title, [*rows[0]] if rows else [], [[*row.values()] for row in rows])


def _row(one: Mapping[str, Any], claim: Mapping[str, Any], *, is_first: bool) -> dict[str, Cell]:
    known, pair = "effect" in one, one["published"]

    def number(value: float | None, error: float | None = None) -> Number | None:
        return None if value is None else Number(value, error)

    sides = [
        Number(one[side]["value"], one[side]["stderr"] or None) if known else None
        for side in ("left", "right")
    ]
    return {
        "No.": str(claim["number"] or "") if is_first else "",
        "Claim": claim["says"] if is_first else "",
        "Verdict": claim["verdict"] if is_first else "",
        "Inequality": one["says"],
        "Asked": relation(one),
        "Figure": one["figure"],
        "Quantizer": one["quantizer"] or "",
        "Seeds": len(one["seeds"]) if known else None,
        "Published: left, right": "" if pair is None else f"{pair['left']:g}, {pair['right']:g}",
        "Left": sides[0],
        "Right": sides[1],
        "Left / right": number(one.get("ratio")),
        "Effect": number(one.get("effect"), one.get("error")),
        "Smallest effect seen": number(one.get("smallest_effect")),
        "Verdict of the inequality": one["verdict"] + (f" ({one['why']})" if "why" in one else ""),
        "About": ", ".join(claim["about"]),
    }
