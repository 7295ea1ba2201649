"""The stage that judges claims: every inequality from the raw results that its query names."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any

from ptq_dynamics.claims.calibration import deviations
from ptq_dynamics.claims.estimates import Estimate, mean, over_draws
from ptq_dynamics.claims.readings import Readings
from ptq_dynamics.claims.settings import CLAIMS, Claim, ClaimsSettings, Inequality, Term
from ptq_dynamics.claims.terms import Deviations, NotMeasured, Terms
from ptq_dynamics.claims.verdicts import Verdict, of_claim, of_inequality, over_seeds
from ptq_dynamics.engine.context import Context

# What no error counts, where there is one alone.
ONE_SEED = "other seeds"
ONE_SET = "other calibration sets"
NO_ERROR = "no error is known"


def run(context: Context[ClaimsSettings]) -> Mapping[str, Any]:
    """Write claims.json; facts: how many claims have each verdict."""
    settings = context.settings
    readings = Readings(settings.series, settings.runs, settings.branches, context.inputs)
    every = [one for claim in settings.claims for one in claim.inequalities]
    seeds = {seed for one in every for seed in one.seeds}
    terms = chain.from_iterable(_terms(one) for one in every if one.missing is None)
    between = deviations(terms, sorted(seeds), readings)
    claims = [judged(claim, readings, between) for claim in settings.claims]
    content = {
        "scale": settings.scale,
        "deviation_between_calibration_sets": [
            {"metric": metric, "quantizer": quantizer, "value": value}
            for (metric, quantizer), value in sorted(between.items())
        ],
        "claims": claims,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    (context.out / CLAIMS).write_text(text + "\n", encoding="utf-8")
    return {"verdicts": dict(sorted(Counter(each["verdict"] for each in claims).items()))}


def judged(claim: Claim, readings: Readings, between: Deviations) -> dict[str, Any]:
    """A claim with its verdict, and those of its inequalities with all numbers."""
    found = [_inequality(each, readings, between) for each in claim.inequalities]
    verdicts = Counter(each["verdict"] for each in found)
    return {
        "name": claim.name,
        "number": claim.number,
        "says": claim.says,
        "verdict": of_claim(Verdict(each["verdict"]) for each in found),
        "about": [f"miniature of {name}" for name in claim.miniatures],
        "counts": dict(sorted(verdicts.items())),
        "inequalities": found,
    }


def _inequality(one: Inequality, readings: Readings, between: Deviations) -> dict[str, Any]:
    said: dict[str, Any] = {
        "says": one.says,
        "figure": one.figure,
        "quantizer": one.quantizer,
        "metric": one.metric,
        "is": "above" if one.above else "below",
        "times": one.times,
        "tolerance": one.tolerance,
        "because": one.because,
        "published": _published(one),
    }
    reason = one.missing
    if reason is None:
        try:
            return said | _measured(one, readings, between)
        except NotMeasured as missing:
            reason = str(missing)
    return said | {"verdict": Verdict.NOT_MEASURED, "why": reason}


def _measured(one: Inequality, readings: Readings, between: Deviations) -> dict[str, Any]:
    """The numbers of an inequality; raises `NotMeasured` where there are none."""
    draws = max((len(term.draws) for term in _terms(one)), default=0)
    alone = [(term.metric, term.draws[0]) for term in _terms(one) if len(term.draws) == 1]
    unknown = one.calibrated and any(key not in between for key in alone)
    by_seed = list[tuple[Estimate, Estimate, Estimate]]()
    every = [(seed, draw) for seed in one.seeds for draw in range(max(draws, 1))]
    for seed in one.seeds:
        found = [
            sides(one, Terms(readings, *each, every, between)) for each in every if each[0] == seed
        ]
        over = [over_draws(each, f"draws of seed {seed}") for each in zip(*found, strict=True)]
        by_seed.append((over[0], over[1], over[2]))
    effect = over_seeds([each for _, _, each in by_seed])
    left, right = mean([each for each, _, _ in by_seed]), mean([each for _, each, _ in by_seed])
    verdict = of_inequality(effect)
    if verdict is Verdict.NOT_MEASURED:
        raise NotMeasured("it has no finite value")
    ratio = left.value / right.value if right.value else math.nan
    level = abs(right.value)
    return {
        "verdict": verdict,
        **({"why": NO_ERROR} if effect.error is None else {}),
        "left": _shown(left),
        "right": _shown(right),
        "ratio": _finite(ratio),
        "effect": effect.value,
        "stderr": effect.stderr,
        "spread_over_seeds": effect.spread,
        "error": effect.error,
        "smallest_effect": effect.smallest,
        "smallest_effect_of_right": (
            _finite(effect.smallest / level) if level and effect.smallest is not None else None
        ),
        "seeds": list(one.seeds),
        "calibration_sets": draws,
        "not_in_the_error": [
            *([ONE_SEED] if len(one.seeds) == 1 else []),
            *([ONE_SET] if unknown else []),
        ],
    }


def sides(one: Inequality, terms: Terms) -> tuple[Estimate, Estimate, Estimate]:
    """Left, right, and the effect in the claimed direction."""
    if one.left is None:
        raise NotMeasured("it names no measurement")
    left, right = terms.value(one.left), terms.value(one.right)
    # What is tolerated is a share of the size of the right side, whatever its sign.
    slack = math.copysign(one.tolerance, right.value) * (-1 if one.above else 1)
    effect = left - right * (one.times * (1 + slack))
    return left, right, effect if one.above else effect * -1.0


def _terms(one: Inequality) -> list[Term]:
    """All terms of an inequality."""
    waiting: list[Term | float | None] = [one.left, one.right]
    found = []
    while waiting:
        term = waiting.pop()
        if isinstance(term, Term):
            found.append(term)
            waiting += [term.less, term.per]
    return found


def _published(one: Inequality) -> dict[str, float | None] | None:
    if one.published is None:
        return None
    left, right = one.published
    return {"left": left, "right": right, "ratio": _finite(left / right) if right else None}


def _shown(estimate: Estimate) -> dict[str, float]:
    return {"value": estimate.value, "stderr": estimate.stderr}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
