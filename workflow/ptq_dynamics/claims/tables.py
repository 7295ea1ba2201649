"""The stage that writes tables of numbers: of runs, of tasks, and of claims."""

import json
from collections.abc import Mapping
from typing import Any

from ptq_dynamics.claims.estimates import over_draws
from ptq_dynamics.claims.formats import FORMATS, Cell, Number, Table
from ptq_dynamics.claims.readings import Readings
from ptq_dynamics.claims.settings import (
    CLAIMS,
    ClaimMetric,
    Filled,
    Place,
    Row,
    RunsTable,
    TablesSettings,
    TasksTable,
    Term,
)
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
    between = {
        (each["metric"], each["quantizer"]): each["value"]
        for each in judged["deviation_between_calibration_sets"]
    }
    rows = dict[str, int]()
    for filled in settings.tables:
        match filled.table:
            case RunsTable():
                table = of_runs(filled, filled.table, readings, between)
            case TasksTable():
                table = of_tasks(filled, readings)
            case _:
                table = of_claims(filled.table.title, judged)
        rows[filled.name] = len(table.rows)
        for suffix, text in FORMATS.items():
            path = context.out / f"{filled.name}.{suffix}"
            path.write_text(text(table), encoding="utf-8")
    return {"rows": rows}


def of_runs(filled: Filled, table: RunsTable, readings: Readings, between: Deviations) -> Table:
    """A row a trajectory: loss in full precision and the error under every quantizer, where the
    phase before it ends, at its own end, and at equal loss."""
    names = tuple(row.name for row in filled.rows)
    places = {BEFORE: Place(end=0)} if any(row.starts for row in filled.rows) else {}
    places |= {END: Place()} | ({LEVEL: Place(loss_of=names)} if table.equal_loss and names else {})
    called = words.call(filled.columns)
    asked: list[tuple[str, str, str, ClaimMetric, str | None]] = []
    for place in places:
        if place != LEVEL:
            asked.append((place, f"Loss, {place}", "", LOSS, None))
        asked += [
            (place, f"{called[each.name]} error (%), {place}", each.name, QUANTIZATION_ERROR, "%")
            for each in filled.columns
        ]
    rows = list[list[Cell]]()
    for row in filled.rows:
        points = readings.points(row.name, LOSS, None, row.seeds[0])
        tokens = points[-1].tokens if points else float("nan")
        cells: list[Cell] = [row.curve, row.name, int(tokens) if tokens == tokens else None]
        for place, _, quantizer, metric, percent in asked:
            draws = row.draws.get(quantizer, ())
            unknown = (place == BEFORE and not row.starts) or (percent and not draws)
            term = Term(of=(row.name,), at=places[place], metric=metric, draws=draws)
            cells.append(None if unknown else _value(term, row, readings, between))
        rows.append(cells)
    heads = ["Curve", "Trajectory", "Tokens", *(head for _, head, *_ in asked)]
    return Table(table.title, heads, rows)


def _value(term: Term, row: Row, readings: Readings, between: Deviations) -> Number | None:
    """The mean over seeds and draws, with the larger of the paired error and the seeds' spread."""
    effects = []
    for seed in row.seeds:
        terms = (
            Terms(readings, seed, draw, between_sets=between)
            for draw in range(max(len(term.draws), 1))
        )
        try:
            values = [each.value(term) for each in terms]
        except NotMeasured:
            return None
        effects.append(over_draws(values, f"draws of seed {seed}"))
    found = over_seeds(effects)
    return Number(found.value, found.error, percent=term.metric == QUANTIZATION_ERROR)


def of_tasks(filled: Filled, readings: Readings) -> Table:
    """A row for every trajectory and quantizer: the accuracy on every task at the end, in full
    precision, or how much of it is lost."""
    called = {"": "full precision", **words.call(filled.columns)}
    found = list[tuple[list[Cell], dict[str, Number]]]()
    for row in filled.rows:
        for name in ("", *(each.name for each in filled.columns)):
            draws = row.draws.get(name, ())
            metric = DEGRADATION if name else ACCURACY
            if name and not draws:
                continue
            scores = readings.scores(row.name, metric, next(iter(draws), None), row.seeds[0])
            numbers = {task: Number(*score, percent=True) for task, score in scores.items()}
            if numbers:
                head: list[Cell] = [row.curve, row.name, called[name], metric.replace("_", " ")]
                found.append((head, numbers))
    tasks = sorted({task for _, scores in found for task in scores}, key=lambda t: (t == MEAN, t))
    rows = [[*head, *(scores.get(task) for task in tasks)] for head, scores in found]
    heads = ["Curve", "Trajectory", "Quantizer", "Metric", *(f"{task} (%)" for task in tasks)]
    return Table(filled.table.title, heads, rows)


def of_claims(title: str, judged: Mapping[str, Any]) -> Table:
    """A row for every inequality of every claim, with the claim's verdict in its first."""
    rows = []
    for claim in judged["claims"]:
        first = [str(claim["number"] or ""), claim["says"], claim["verdict"]]
        for one in claim["inequalities"]:
            rows.append(_row(one, first, ", ".join(claim["about"])))
            first = ["", "", ""]
    return Table(title, [*rows[0]] if rows else [], [[*row.values()] for row in rows])


def _row(one: Mapping[str, Any], first: list[str], about: str) -> dict[str, Cell]:
    known, pair = "effect" in one, one["published"]

    def number(key: str, error: float | None = None) -> Number | None:
        value = one.get(key)
        return None if value is None else Number(value, error)

    sides = {
        side: Number(one[side]["value"], one[side]["stderr"] or None) if known else None
        for side in ("left", "right")
    }
    return {
        "No.": first[0],
        "Claim": first[1],
        "Verdict": first[2],
        "Inequality": one["says"],
        "Asked": relation(one),
        "Figure": one["figure"],
        "Quantizer": one["quantizer"] or "",
        "Seeds": len(one["seeds"]) if known else None,
        "Published: left, right": "" if pair is None else f"{pair['left']:g}, {pair['right']:g}",
        "Left": sides["left"],
        "Right": sides["right"],
        "Left / right": number("ratio"),
        "Effect": number("effect", one.get("error")),
        "Smallest effect seen": number("smallest_effect"),
        "Verdict of the inequality": one["verdict"] + (f" ({one['why']})" if "why" in one else ""),
        "About": about,
    }
