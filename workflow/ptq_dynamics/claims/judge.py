"""The stage that judges claims: every inequality from the raw results of its figures."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ptq_dynamics.claims.estimates import Estimate, mean, over_draws
from ptq_dynamics.claims.readings import Readings
from ptq_dynamics.claims.settings import CLAIMS, Claim, ClaimsSettings, Inequality
from ptq_dynamics.claims.terms import Deviations, NotMeasured, Terms, deviations
from ptq_dynamics.claims.verdicts import Verdict, of_claim, of_inequality, over_seeds
from ptq_dynamics.engine.context import Context

# What no error counts, where there is one alone.
ONE_SEED = "other seeds"
ONE_SET = "other calibration sets"
NO_ERROR = "no error is known"


def run(context: Context[ClaimsSettings]) -> Mapping[str, Any]:
    """Write claims.json; facts: how many claims have each verdict."""
    settings = context.settings
    readings = Readings(settings.series, settings.runs, context.inputs)
    every = [one for claim in settings.claims.values() for one in claim.inequalities]
    seeds = sorted({seed for one in every for seed in one.seeds})
    between = deviations((term for one in every for term in one.terms), seeds, readings)
    claims = [judged(*each, readings, between) for each in settings.claims.items()]
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


def judged(name: str, claim: Claim, readings: Readings, between: Deviations) -> dict[str, Any]:
    """A claim with its verdict, and those of its inequalities with all numbers."""
    found = [_inequality(each, readings, between) for each in claim.inequalities]
    verdicts = Counter(each["verdict"] for each in found)
    return {
        "name": name,
        "number": claim.number,
        "says": claim.says,
        "verdict": of_claim(Verdict(each["verdict"]) for each in found),
        "about": [f"miniature of {name}" for name in claim.miniatures],
        "counts": dict(sorted(verdicts.items())),
        "inequalities": found,
    }


def _inequality(one: Inequality, readings: Readings, between: Deviations) -> dict[str, Any]:
    left, right = (one.published and one.published[0]) or (None, None)
    said: dict[str, Any] = {
        "says": one.says,
        "figure": one.figure,
        "quantizer": one.quantizer,
        "metric": one.metric,
        "is": one.relation,
        "times": one.times,
        "tolerance": one.tolerance,
        "because": one.because,
        "published": None
        if left is None or right is None
        else {"left": left, "right": right, "ratio": _ratio(left, right)},
    }
    try:
        return said | _measured(one, readings, between)
    except NotMeasured as missing:
        return said | {"verdict": Verdict.NOT_MEASURED, "why": str(missing)}


def _measured(one: Inequality, readings: Readings, between: Deviations) -> dict[str, Any]:
    """The numbers of an inequality; raises `NotMeasured` where there are none."""
    if one.unmeasured is not None:
        raise NotMeasured(one.unmeasured)
    draws = max((len(term.draws) for term in one.terms), default=0)
    alone = [(term.metric, term.draws[0]) for term in one.terms if len(term.draws) == 1]
    unknown = one.calibrated and any(key not in between for key in alone)
    every = [(seed, draw) for seed in one.seeds for draw in range(max(draws, 1))]
    by_seed = list[list[Estimate]]()
    for seed in one.seeds:
        found = [
            sides(one, Terms(readings, *each, every, between)) for each in every if each[0] == seed
        ]
        over = zip(*found, strict=True)
        by_seed.append([over_draws(each, f"draws of seed {seed}") for each in over])
    lefts, rights, effects = zip(*by_seed, strict=True)
    left, right, effect = mean(lefts), mean(rights), over_seeds(effects)
    verdict = of_inequality(effect)
    if verdict is Verdict.NOT_MEASURED:
        raise NotMeasured("it has no finite value")
    smallest = effect.smallest
    return {
        "verdict": verdict,
        **({"why": NO_ERROR} if effect.error is None else {}),
        "left": {"value": left.value, "stderr": left.stderr},
        "right": {"value": right.value, "stderr": right.stderr},
        "ratio": _ratio(left.value, right.value),
        "effect": effect.value,
        "stderr": effect.stderr,
        "spread_over_seeds": effect.spread,
        "error": effect.error,
        "smallest_effect": smallest,
        "smallest_effect_of_right": None
        if smallest is None
        else _ratio(smallest, abs(right.value)),
        "seeds": list(one.seeds),
        "calibration_sets": draws,
        "not_in_the_error": [
            *([ONE_SEED] if len(one.seeds) == 1 else []),
            *([ONE_SET] if unknown else []),
        ],
    }


def sides(one: Inequality, terms: Terms) -> tuple[Estimate, Estimate, Estimate]:
    """Left, right, and the effect in the claimed direction."""
    if one.left is None or one.right is None:
        raise NotMeasured("it names no measurement")
    left, right, above = terms.value(one.left), terms.value(one.right), one.relation == "above"
    # What is tolerated is a share of the size of the right side, whatever its sign.
    slack = math.copysign(one.tolerance, right.value) * (-1 if above else 1)
    effect = left - right * (one.times * (1 + slack))
    return left, right, effect if above else effect * -1.0


def _ratio(one: float, other: float) -> float | None:
    return one / other if other and math.isfinite(one / other) else None
