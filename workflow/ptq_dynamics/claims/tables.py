"""The stage that writes tables of numbers: of runs, of tasks, and of claims."""

import json
import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

from ptq_dynamics.claims.formats import FORMATS, Cell, Number, Table
from ptq_dynamics.claims.judge import by_seed, over_seeds
from ptq_dynamics.claims.readings import NotMeasured, Readings, Terms
from ptq_dynamics.claims.settings import CLAIMS, Filled, Row, TablesSettings, Term
from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.settings import call
from ptq_dynamics.measure import names
from ptq_dynamics.measure.names import FULL_PRECISION

# Where a branch leaves its trunk: of a cooldown, the end of the stable phase.
BEFORE, END, LEVEL = "where it branches off", "end", "at equal loss"


def run(context: Context[TablesSettings]) -> Mapping[str, Any]:
    """Write every table in every format; facts: how many rows each has."""
    settings = context.settings
    judged = json.loads(context.input("claims").file(CLAIMS).read_text(encoding="utf-8"))
    deviations = judged["deviation_between_calibration_sets"]
    between = {(each["metric"], each["quantizer"]): each["value"] for each in deviations}
    readings = Readings(settings.series, settings.runs, context.inputs, between)
    rows = dict[str, int]()
    for filled in settings.tables:
        if filled.table.kind == "claims":
            table = of_claims(filled.table.title, judged)
        else:
            read = of_runs if filled.table.kind == "runs" else of_tasks
            table = read(filled, readings)
        rows[filled.name] = len(table.rows)
        for suffix, text in FORMATS.items():
            (context.out / f"{filled.name}.{suffix}").write_text(text(table), encoding="utf-8")
    return {"rows": rows}


def of_runs(filled: Filled, readings: Readings) -> Table:
    """A row a trajectory: loss in full precision and the error under every quantizer, where the
    phase before it ends, at its own end, and at equal loss."""
    branches = [row.name for row in filled.rows if row.name in readings.branches]
    places: dict[str, dict[str, Any]] = {BEFORE: {"at": 0}} if branches else {}
    places[END] = {}
    if filled.table.equal_loss and filled.rows:
        places[LEVEL] = {"loss_of": [row.name for row in filled.rows]}
    called = call(filled.columns)
    columns = dict[str, tuple[str, str]]()
    for place in places:
        if place != LEVEL:
            columns[f"Loss, {place}"] = place, FULL_PRECISION
        for each in filled.columns:
            columns[f"{called[each.name]} error (%), {place}"] = place, each.name
    rows = list[list[Cell]]()
    for row in filled.rows:
        tokens = readings.points(row.name, names.LOSS, FULL_PRECISION, row.seeds[0]).tokens.max()
        rows.append([row.curve, row.name, int(tokens) if math.isfinite(tokens) else None])
        for place, quantizer in columns.values():
            term = Term.model_validate({"of": row.name, **places[place]})
            known = place != BEFORE or row.name in branches
            rows[-1].append(_value(term, row, quantizer, readings) if known else None)
    return Table(filled.table.title, ["Curve", "Trajectory", "Tokens", *columns], rows)


def _value(term: Term, row: Row, quantizer: str, readings: Readings) -> Number | None:
    """The mean over seeds and draws, with the larger of the paired error and the seeds' spread."""
    is_full = quantizer == FULL_PRECISION
    draws = (FULL_PRECISION,) if is_full else row.draws.get(quantizer)
    if not draws:
        return None
    every = Terms(readings, names.LOSS if is_full else names.QUANTIZATION_ERROR, draws, row.seeds)
    try:
        found = over_seeds([each for (each,) in by_seed(every, lambda terms: [terms.value(term)])])
    except NotMeasured:
        return None
    return Number(found.value, found.error) if is_full else percent(found.value, found.error)


def percent(value: float, error: float | None) -> Number:
    """A share and its error as percent."""
    return Number(value * 100, None if error is None else error * 100)


def of_tasks(filled: Filled, readings: Readings) -> Table:
    """A row for every trajectory and quantizer: the accuracy on every task at the end, in full
    precision, or how much of it is lost."""
    called, heads = call(filled.columns), ["Curve", "Trajectory", "Quantizer", "Metric"]
    found = list[dict[str, Cell]]()
    for row in filled.rows:
        asked = [("full precision", names.ACCURACY, FULL_PRECISION)]
        shown = [each.name for each in filled.columns if each.name in row.draws]
        asked += [(called[name], names.DEGRADATION, row.draws[name][0]) for name in shown]
        for name, metric, draw in asked:
            scores = readings.scores(row.name, metric, draw, row.seeds[0])
            known = row.curve, row.name, name, metric.replace("_", " ")
            line: dict[str, Cell] = dict(zip(heads, known, strict=True))
            line |= {each.task: percent(each.value, each.stderr) for each in scores.itertuples()}
            found += [line] if len(scores) else []
    tasks = sorted({*chain(*found)} - {*heads}, key=lambda task: (task == names.MEAN, task))
    rows = [[*map(line.get, [*heads, *tasks])] for line in found]
    return Table(filled.table.title, [*heads, *(f"{task} (%)" for task in tasks)], rows)


def of_claims(title: str, judged: Mapping[str, Any]) -> Table:
    """A row for every inequality of every claim, with the claim's verdict in its first."""
    rows = list[dict[str, Cell]]()
    for claim in judged["claims"]:
        about = {"No.": str(claim["number"] or ""), "Claim": claim["says"]}
        about["Verdict"] = claim["verdict"]
        for one in claim["inequalities"]:
            rows.append({**about, **_numbers(one), "About": ", ".join(claim["about"])})
            about = dict.fromkeys(about, "")
    return Table(title, [*rows[0]] if rows else [], [[*row.values()] for row in rows])


def _numbers(one: Mapping[str, Any]) -> dict[str, Cell]:
    times = "" if one["times"] == 1 else f"{one['times']:g} × "
    within = f", within {100 * one['tolerance']:g} %" if one["tolerance"] else ""
    pair, none = one["published"], {"value": None, "stderr": None}
    left, right = one.get("left", none), one.get("right", none)

    def number(value: float | None, error: float | None = None) -> Number | None:
        return None if value is None else Number(value, error)

    return {
        "Inequality": one["says"],
        "Asked": f"left {one['is']} {times}right{within}",
        "Figure": one["figure"],
        "Quantizer": one["quantizer"] or "",
        "Seeds": len(one["seeds"]) if "seeds" in one else None,
        "Published: left, right": "" if pair is None else f"{pair['left']:g}, {pair['right']:g}",
        "Left": number(left["value"], left["stderr"] or None),
        "Right": number(right["value"], right["stderr"] or None),
        "Left / right": number(one.get("ratio")),
        "Effect": number(one.get("effect"), one.get("error")),
        "Smallest effect seen": number(one.get("smallest_effect")),
        "Verdict of the inequality": one["verdict"] + (f" ({one['why']})" if "why" in one else ""),
    }
