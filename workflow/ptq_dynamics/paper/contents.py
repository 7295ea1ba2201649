"""All that the text cites, as one file of data."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ptq_dynamics.claims.settings import CLAIMS
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.settings import FINDING, PICTURES, UNITS, rounded
from ptq_dynamics.measure.names import MEASUREMENTS
from ptq_dynamics.paper import costs, history, judged, measured, tabulated
from ptq_dynamics.paper.history import History
from ptq_dynamics.paper.numbers import short, whole
from ptq_dynamics.paper.settings import PaperSettings, RegimeRow

PICTURE = PICTURES[0]
# Labels of the inputs, beside one for every figure.
JUDGED, TABLES, MEASURED = "claims", "tables", "measurements"
# Digits of digests in the text, and in its stamps.
DIGITS, STAMP = 16, 8
HOUR = 3600


def label(figure: str) -> str:
    """The label of a figure's manifest among the inputs."""
    return f"figure {figure}"


def contents(
    settings: PaperSettings, inputs: Mapping[str, Manifest], made: History, identity: str
) -> dict[str, Any]:
    """What the text is told, as plain data."""
    content = json.loads(inputs[JUDGED].file(CLAIMS).read_text(encoding="utf-8"))
    collected = inputs[MEASURED].file(MEASUREMENTS).read_text(encoding="utf-8")
    drawn = [each for each in settings.figures if each.missing is None]
    numbers = {
        **dict(settings.numbers),
        **judged.numbers(content),
        **measured.numbers(collected),
        **_numbers(made),
        "figures.all": str(len(settings.figures)),
        "figures.drawn": str(len(drawn)),
        "figures.missing": str(len(settings.figures) - len(drawn)),
    }
    return {
        "scale": {
            "name": settings.scale,
            "description": settings.description,
            "miniatures": settings.miniatures,
        },
        "identity": identity,
        "numbers": numbers,
        "figures": {
            each.name: {
                "title": each.title,
                "caption": each.caption,
                "finding": inputs[label(each.name)].facts.get(FINDING)
                if each.missing is None
                else None,
                "without": list(each.without),
                "missing": each.missing,
                "file": f"/figures/{each.name}.{PICTURE}" if each.missing is None else None,
            }
            for each in settings.figures
        },
        "claims": judged.claims(content),
        "tables": {
            each.name: {
                "title": each.title,
                **_table(inputs[TABLES], each.name).content(),
            }
            for each in settings.tables
        },
        "records": {key: _stamped(each, made) for key, each in inputs.items()},
        "newest": f"{made.newest:%Y-%m-%d %H:%M:%S} UTC",
        "environment": made.environment,
        "packages": made.packages,
        "commits": [[name, count] for name, count in made.commits.most_common()],
        "machines": [_machine(kind, each) for kind, each in made.machines.items()],
        "costs": _costs(made),
        "columns": list(settings.columns),
        "regime": [_regime(row) for row in settings.regime],
        "configuration": [list(each) for each in settings.configuration],
    }


def _numbers(made: History) -> dict[str, str]:
    """Numbers by key, of records."""
    records = made.records.values()
    cores = sum(each.cpu_seconds for each in records) / HOUR
    return {
        "records.all": whole(len(records)),
        "records.unknown": whole(len(made.unknown)),
        "records.dirty": whole(sum(1 for each in records if each.git and each.git.dirty)),
        "records.without-commit": whole(sum(1 for each in records if each.git is None)),
        "records.accepted": whole(sum(1 for each in records if each.accepted)),
        "compute.core-hours": short(cores),
        "compute.tokens": rounded(sum(each.tokens or 0 for each in records)),
        "compute.machines": str(len(made.machines)),
        "compute.peak-gib": short(max(each.peak_memory for each in records) / 2**30),
    }


def _table(manifest: Manifest, name: str) -> tabulated.Tabulated:
    path = manifest.file(f"{name}.csv")
    return tabulated.table(path.read_text(encoding="utf-8"), str(path))


def _stamped(manifest: Manifest, made: History) -> dict[str, str]:
    found = history.of(manifest, made)
    return {
        "manifest": str(manifest.path),
        "stamp": found.identity[:STAMP],
        "identity": found.identity[:DIGITS],
        "done": f"{history.ended(found):%Y-%m-%d %H:%M} UTC",
        "commit": history.commit(found)[:STAMP],
    }


def _machine(kind: Iterable[str], records: list[Any]) -> list[str]:
    hours = sum(each.cpu_seconds for each in records) / HOUR
    return [*kind, whole(len(records)), short(hours)]


def _costs(made: History) -> dict[str, Any]:
    table = costs.table(made.records.values())
    rows = [[whole(cell) if isinstance(cell, int) else str(cell) for cell in r] for r in table.rows]
    return {"title": table.title, "heads": list(table.heads), "rows": rows}


def _regime(row: RegimeRow) -> dict[str, Any]:
    cells = [
        {"mine": _brief(each.mine), "theirs": _brief(each.theirs), "unlike": each.unlike}
        for each in row.cells
    ]
    return {"run": row.run, "cells": cells}


def _brief(value: float | None) -> str:
    return short(value) if value is None or value < UNITS["k"] else rounded(value)
