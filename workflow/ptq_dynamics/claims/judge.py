"""The stage that judges claims: every inequality from the raw results of its figures."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from itertools import product
from typing import Any

from ptq_dynamics.claims.estimates import Estimate, mean, over_draws
from ptq_dynamics.claims.readings import Readings
from ptq_dynamics.claims.settings import CLAIMS, Claim, ClaimsSettings, Inequality
from ptq_dynamics.claims.terms import Deviations, NotMeasured, Terms, deviations
from ptq_dynamics.claims.verdicts import Verdict, of_claim, of_inequality, over_seeds
from ptq_dynamics.engine.context import Context


def run(context: Context[ClaimsSettings]) -> Mapping[str, Any]:
    """Write claims.json; facts: how many claims have each verdict."""
    settings = context.settings
    readings = Readings(settings.series, settings.runs, context.inputs)
    every = [one for _, claim in settings.claims for one in claim.inequalities]
    between = deviations(every, readings)
    claims = [_judged(*each, readings, between) for each in settings.claims]
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


def _judged(name: str, claim: Claim, readings: Readings, between: Deviations) -> dict[str, Any]:
    found = [_inequality(each, readings, between) for each in claim.inequalities]
    verdicts = Counter(each["verdict"] for each in found)
    return {
        "name": name,
        "number": claim.number,
        "says": claim.says,
        "verdict": of_claim(Verdict(each) for each in verdicts),
        "about": [f"miniature of {name}" for name in claim.miniatures],
        "counts": dict(sorted(verdicts.items())),
        "inequalities": found,
    }


def _inequality(one: Inequality, readings: Readings, between: Deviations) -> dict[str, Any]:
    pair = one.published[0] if one.published else None
    stated: dict[str, Any] = {
        "says": one.says,
        "figure": one.figure,
        "quantizer": one.quantizer,
        "metric": one.metric,
        "is": one.relation,
        "times": one.times,
        "tolerance": one.tolerance,
        "because": one.because,
        "published": pair and {"left": pair[0], "right": pair[1], "ratio": _ratio(*pair)},
    }
    try:
        return stated | _measured(one, readings, between)
    except NotMeasured as missing:
        return stated | {"verdict": Verdict.NOT_MEASURED, "why": str(missing)}


def _measured(one: Inequality, readings: Readings, between: Deviations) -> dict[str, Any]:
    """The numbers of an inequality; raises `NotMeasured` where there are none."""
    if one.unmeasured is not None:
        raise NotMeasured(one.unmeasured)
    draws = range(max(len(one.draws), 1))
    every = tuple(product(one.seeds, draws))
    by_seed = list[list[Estimate]]()
    for seed in one.seeds:
        terms = (Terms(readings, one.metric, one.draws, seed, n, between, every) for n in draws)
        over = zip(*(sides(one, each) for each in terms), strict=True)
        by_seed.append([over_draws(each, f"draws of seed {seed}") for each in over])
    lefts, rights, effects = zip(*by_seed, strict=True)
    left, right, effect = mean(lefts), mean(rights), over_seeds(effects)
    verdict, least = of_inequality(effect), effect.smallest
    if verdict is Verdict.NOT_MEASURED:
        raise NotMeasured("it has no finite value")
    of_one_set = one.calibrated and len(one.draws) == 1
    one_set = of_one_set and (one.metric, one.draws[0]) not in between
    not_counted = {"other seeds": len(one.seeds) == 1, "other calibration sets": one_set}
    return {
        "verdict": verdict,
        **({"why": "no error is known"} if effect.error is None else {}),
        "left": {"value": left.value, "stderr": left.stderr},
        "right": {"value": right.value, "stderr": right.stderr},
        "ratio": _ratio(left.value, right.value),
        "effect": effect.value,
        "stderr": effect.stderr,
        "spread_over_seeds": effect.spread,
        "error": effect.error,
        "smallest_effect": least,
        "smallest_effect_of_right": None if least is None else _ratio(least, abs(right.value)),
        "seeds": list(one.seeds),
        "calibration_sets": len(one.draws),
        "not_in_the_error": [what for what, missing in not_counted.items() if missing],
    }


def sides(one: Inequality, terms: Terms) -> tuple[Estimate, Estimate, Estimate]:
    """Left, right, and the effect in the claimed direction."""
    left, right, above = terms.value(one.left), terms.value(one.right), one.relation == "above"
    # What is tolerated is a share of the size of the right side, whatever its sign.
    slack = math.copysign(one.tolerance, right.value) * (-1 if above else 1)
    effect = left - right * Estimate(one.times * (1 + slack))
    return left, right, effect if above else effect * Estimate(-1.0)


def _ratio(one: float, other: float) -> float | None:
    return one / other if other and math.isfinite(one / other) else None
