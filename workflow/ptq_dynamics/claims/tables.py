"""The stage that writes tables of numbers: of runs, of tasks, and of claims."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ptq_dynamics.claims.estimates import over_draws
from ptq_dynamics.claims.formats import FORMATS, Cell, Number, Table
from ptq_dynamics.claims.readings import Readings
from ptq_dynamics.claims.settings import (
    CLAIMS,
    At,
    Column,
    Row,
    TableSettings,
    TablesSettings,
    Term,
)
from ptq_dynamics.claims.terms import Deviations, NotMeasured, Terms
from ptq_dynamics.claims.verdicts import Effect, over_seeds, relation
from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures import words
from ptq_dynamics.measure.names import ACCURACY, DEGRADATION, LOSS, MEAN, QUANTIZATION_ERROR

# Where a branch leaves its trunk: of a cooldown, the end of the stable phase.
BEFORE, LEVEL = "where it branches off", "at equal loss"
END = At()
START = At(share=0.0)


def run(context: Context[TablesSettings]) -> Mapping[str, Any]:
    """Write every table in every format; facts: how many rows each has."""
    settings = context.settings
    readings = Readings(settings.series, (), settings.branches, context.inputs)
    judged = json.loads(context.input("claims").file(CLAIMS).read_text(encoding="utf-8"))
    between = {
        (each["metric"], each["quantizer"]): each["value"]
        for each in judged["deviation_between_calibration_sets"]
    }
    rows = dict[str, int]()
    for asked in settings.tables:
        match asked.kind:
            case "runs":
                table = of_runs(asked, readings, between)
            case "tasks":
                table = of_tasks(asked, readings)
            case "claims":
                table = of_claims(asked, judged)
        rows[asked.name] = len(table.rows)
        for suffix, text in FORMATS.items():
            path = context.out / f"{asked.name}.{suffix}"
            path.write_text(text(table), encoding="utf-8")
    return {"rows": rows}


def of_runs(asked: TableSettings, readings: Readings, between_sets: Deviations) -> Table:
    """A row a trajectory: loss in full precision and the error under every quantizer, where the
    phase before it ends, at its own end, and at equal loss."""

    def read(seed: int, draw: int) -> Terms:
        return Terms(readings, seed, draw, between_sets=between_sets)

    places: list[tuple[str, At]] = [("end", END)]
    if any(row.starts for row in asked.rows):
        places.insert(0, (BEFORE, START))
    if asked.level:
        places.append((LEVEL, At(loss_of=asked.level)))
    heads, rows = ["Curve", "Trajectory", "Tokens"], list[list[Cell]]()
    heads += [f"{what}, {place}" for place, _ in places for what in _measures(asked, place)]
    for row in asked.rows:
        cells: list[Cell] = [row.curve, row.name, _tokens(row, readings)]
        for place, at in places:
            known = place != BEFORE or row.starts
            if place == LEVEL and row.name not in asked.level:
                known = False
            if place != LEVEL:
                cells.append(_value(row, LOSS, None, at, read) if known else None)
            for column in asked.columns:
                cells.append(_value(row, QUANTIZATION_ERROR, column, at, read) if known else None)
        rows.append(cells)
    return Table(asked.title, heads, rows)


def _measures(asked: TableSettings, place: str) -> Iterator[str]:
    called = words.call([column.shown for column in asked.columns])
    if place != LEVEL:
        yield "Loss"
    for column in asked.columns:
        yield f"{called[column.shown.name]} error (%)"


def of_tasks(asked: TableSettings, readings: Readings) -> Table:
    """A row for every trajectory and quantizer: the accuracy on every task at the end, in full
    precision, or how much of it is lost."""
    called = words.call([column.shown for column in asked.columns])
    found = list[tuple[list[Cell], dict[str, Number]]]()
    for row in asked.rows:
        for column in (None, *asked.columns):
            metric = ACCURACY if column is None else DEGRADATION
            draws = () if column is None else dict(column.draws).get(row.name, ())
            if column is not None and not draws:
                continue
            quantizer = draws[0] if draws else None
            scores = readings.scores(row.name, metric, quantizer, row.seeds[0])
            shown = "full precision" if column is None else called[column.shown.name]
            head: list[Cell] = [row.curve, row.name, shown, metric.replace("_", " ")]
            numbers = {task: Number(*score, percent=True) for task, score in scores.items()}
            if numbers:
                found.append((head, numbers))
    # Not as inputs have them: a record has these in another order.
    tasks = sorted({task for _, scores in found for task in scores}, key=lambda t: (t == MEAN, t))
    rows = [[*head, *(scores.get(task) for task in tasks)] for head, scores in found]
    heads = ["Curve", "Trajectory", "Quantizer", "Metric", *(f"{task} (%)" for task in tasks)]
    return Table(asked.title, heads, rows)


CLAIM_HEADS = (
    "No.",
    "Claim",
    "Verdict",
    "Inequality",
    "Asked",
    "Figure",
    "Quantizer",
    "Seeds",
    "Published: left, right",
    "Left",
    "Right",
    "Left / right",
    "Effect",
    "Smallest effect seen",
    "Verdict of the inequality",
    "About",
)


def of_claims(table: TableSettings, judged: Mapping[str, Any]) -> Table:
    """A row for every inequality of every claim, with the claim's verdict in its first."""
    rows = list[list[Cell]]()
    for claim in judged["claims"]:
        about = ", ".join(claim["about"])
        for place, one in enumerate(claim["inequalities"]):
            first: list[Cell] = ["", "", ""]
            if not place:
                first = [_number(claim["number"]), claim["says"], claim["verdict"]]
            known = "effect" in one
            rows.append(
                [
                    *first,
                    one["says"],
                    relation(one),
                    one["figure"],
                    one["quantizer"] or "",
                    len(one["seeds"]) if known else None,
                    _published(one["published"]),
                    *([_side(one["left"]), _side(one["right"])] if known else [None, None]),
                    None if not known or one["ratio"] is None else Number(one["ratio"]),
                    Number(one["effect"], one["error"]) if known else None,
                    _smallest(one),
                    one["verdict"] + (f" ({one['why']})" if "why" in one else ""),
                    about,
                ]
            )
    return Table(table.title, CLAIM_HEADS, rows)


def _number(number: int | None) -> str:
    return "" if number is None else str(number)


def _side(found: Mapping[str, float]) -> Number:
    return Number(found["value"], found["stderr"] or None)


def _smallest(one: Mapping[str, Any]) -> Number | None:
    found = one.get("smallest_effect")
    return None if found is None else Number(found)


def _published(pair: Mapping[str, float | None] | None) -> str:
    return "" if pair is None else f"{pair['left']:g}, {pair['right']:g}"


def _tokens(row: Row, readings: Readings) -> Cell:
    points = readings.points(row.name, LOSS, None, row.seeds[0])
    tokens = points[-1].tokens if points else float("nan")
    return int(tokens) if tokens == tokens else None


def _value(
    row: Row, metric: str, column: Column | None, at: At, read: Callable[[int, int], Terms]
) -> Number | None:
    draws = () if column is None else dict(column.draws).get(row.name, ())
    if column is not None and not draws:
        return None
    try:
        found = _over_seeds(Term((row.name,), at, "mean", metric, draws), row, read)
    except NotMeasured:
        return None
    return Number(found.value, found.error, percent=metric == QUANTIZATION_ERROR)


def _over_seeds(term: Term, row: Row, read: Callable[[int, int], Terms]) -> Effect:
    """The mean over seeds and draws, with the larger of the paired error and the seeds' spread."""
    found = []
    for seed in row.seeds:
        draws = range(max(len(term.draws), 1))
        values = [read(seed, draw).value(term) for draw in draws]
        found.append(over_draws(values, f"draws of seed {seed}"))
    return over_seeds(found)
