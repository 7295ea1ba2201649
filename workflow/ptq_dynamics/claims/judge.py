"""The stage that judges each claim by one estimand, from the raw results of its figures.

An interval holds 95 % of the bootstrap replicates. The step-down test of Holm (1979) keeps the
chance of any false outcome in a build at 5 %."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ptq_dynamics.claims.beyond import BEYOND, EVERY
from ptq_dynamics.claims.bootstrap import REPLICATES, Bootstrap
from ptq_dynamics.claims.definitions import CLAIMS, Claim, ClaimsSettings, Drawn, Row
from ptq_dynamics.claims.forest import forest, write
from ptq_dynamics.claims.samples import Sample, Samples
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.measurements import Inputs

LEVEL = 0.05
# Outcomes of a claim in one build.
AGREES, OPPOSES, UNRESOLVED = "agrees", "opposes", "unresolved"
NOT_TESTABLE, NOT_MEASURED = "not testable", "not measured"


def run(context: Context[ClaimsSettings]) -> Mapping[str, Any]:
    """Write claims.json and the forest plot; the fact is the number of claims by outcome."""
    settings = context.settings
    claims = judged(settings, lambda claim: read(claim, settings.figures, context.inputs))
    content = {"scale": settings.scale, "replicates": REPLICATES, "claims": claims}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    (context.out / CLAIMS).write_text(text + "\n", encoding="utf-8")
    write(forest({settings.scale: claims}), context.out)
    return {"outcomes": dict(sorted(Counter(each["outcome"] for each in claims).items()))}


def read(claim: Claim, figures: Mapping[str, Drawn], inputs: Inputs) -> Bootstrap:
    """Return the data of a claim's figures, with the calibration sets that all of these have."""
    shown = [figures[name] for name in claim.figures]
    draws = dict[str, tuple[str, ...]]()
    for name, sets in (pair for each in shown for pair in each.draws.items()):
        draws[name] = min(draws.get(name, sets), sets, key=len)
    series = (one for each in shown for one in each.series)
    return Bootstrap(series, (run for each in shown for run in each.runs), draws, inputs)


def judged(settings: ClaimsSettings, curves: Callable[[Claim], Bootstrap]) -> list[dict[str, Any]]:
    """Return every claim with its rows and its outcome, as claims.json holds them."""
    found, tests = list[dict[str, Any]](), dict[str, tuple[float, float]]()
    for claim in (each for each in EVERY if each.name in settings.claims):
        told = settings.claims[claim.name]
        stated: dict[str, Any] = {"name": claim.name, "number": claim.number, "says": told.says}
        stated |= {"figures": list(claim.figures), "about": list(told.miniatures), "rows": []}
        stated |= {"expected": claim.direction, "margin": claim.margin, "seeds": list(told.seeds)}
        found.append(stated)
        if told.unmeasured is not None:
            stated |= {"outcome": NOT_MEASURED, "why": told.unmeasured}
            continue
        view, rows = Samples(curves(claim), told.seeds, numbers=settings.numbers), stated["rows"]
        for row in claim.read(view):
            rows.append(_row(row, view.missing))
            if len(rows) == 1 and "low" in rows[0]:
                tests[claim.name] = _chances(row.sample, claim)
            view.missing.clear()
        if claim.in_small is not None and told.miniatures:
            tests.pop(claim.name, None)
            stated |= {"outcome": NOT_TESTABLE, "why": claim.in_small}
        elif claim.name not in tests:
            outcome = UNRESOLVED if "value" in rows[0] else NOT_MEASURED
            stated |= {"outcome": outcome, "why": rows[0]["why"]}
    # Expectations beyond the paper are a family of tests of their own.
    beyond = {each.name for each in BEYOND}
    families = [{n: tests[n] for n in tests if (n in beyond) == is_in} for is_in in (False, True)]
    outcomes = _holm(families[0]) | _holm(families[1])
    for each in found:
        each.setdefault("outcome", outcomes.get(each["name"]))
    return found


def _row(row: Row, missing: list[str]) -> dict[str, Any]:
    stated = {"says": row.says, "unit": row.unit, "published": row.published}
    value, others = float(row.sample[0]), row.sample[1:]
    if not np.isfinite(value):
        return stated | {"why": missing[0] if missing else "it has no finite value"}
    if not np.isfinite(others).all() or others.std() <= 1e-12 * abs(value):
        return stated | {"value": value, "why": "its error is not known"}
    low, high = np.quantile(others, [LEVEL / 2, 1 - LEVEL / 2])
    if not low <= value <= high:
        return stated | {"why": "its divisor cannot be distinguished from zero"}
    stated |= {"value": value, "low": float(low), "high": float(high)}
    if row.published is not None:
        stated["covers"] = bool(low <= row.published <= high)
    # About 3.9 standard errors: the test has a power of 80 % beside twenty other claims.
    return stated | {"smallest": float(high - low)}


def _chances(sample: Sample, claim: Claim) -> tuple[float, float]:
    """Return p-values for the claimed direction (`alike`: within the margin), and against it."""
    others, margin = sample[1:], claim.margin

    def share(held: np.ndarray) -> float:
        return max(float(held.mean()), 1 / REPLICATES)

    if claim.direction == "alike":
        outside = max(share(others >= margin), share(others <= 1 / margin))
        return outside, share((others < margin) & (others > 1 / margin))
    above, below = 2 * share(~(others > 1)), 2 * share(~(others < 1))
    return (above, below) if claim.direction == "above" else (below, above)


def _holm(tests: Mapping[str, tuple[float, float]]) -> dict[str, str]:
    """Return outcomes by the step-down procedure of Holm."""
    order = sorted(tests, key=lambda name: min(tests[name]))
    found, goes_on = dict[str, str](), True
    for place, name in enumerate(order):
        agrees, opposes = tests[name]
        goes_on = goes_on and min(agrees, opposes) <= LEVEL / (len(order) - place)
        seen = AGREES if agrees < opposes else OPPOSES
        found[name] = seen if goes_on else UNRESOLVED
    return found
