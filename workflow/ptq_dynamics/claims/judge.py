"""The stage that judges claims: every inequality from the raw results of its figures.

A verdict comes from an effect in the claimed direction and its error alone. The rule was set before
any result was looked at, and no claim has one of its own. That nothing is concluded where no error
is known was added later.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from ptq_dynamics.claims.estimates import Estimate, mean, over_draws
from ptq_dynamics.claims.readings import NotMeasured, Readings, Terms, deviations
from ptq_dynamics.claims.settings import CLAIMS, Claim, ClaimsSettings, Inequality
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import FULL_PRECISION

# Standard errors that an effect has to have to be seen.
SEEN = 2.0


class Verdict(StrEnum):
    """What a build says of an inequality, or of a claim; of several, the first outweighs others."""

    NOT_REPRODUCED = "not reproduced"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not measured"
    REPRODUCED = "reproduced"


def run(context: Context[ClaimsSettings]) -> Mapping[str, Any]:
    """Write claims.json; facts: how many claims have each verdict."""
    settings = context.settings
    readings = Readings(settings.series, settings.runs, context.inputs)
    every = [one for _, claim in settings.claims for one in claim.inequalities]
    readings.between = deviations(every, readings)
    claims = [_judged(name, claim, readings) for name, claim in settings.claims]
    content = {
        "scale": settings.scale,
        "deviation_between_calibration_sets": [
            {"metric": metric, "quantizer": quantizer, "value": value}
            for (metric, quantizer), value in sorted(readings.between.items())
        ],
        "claims": claims,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    (context.out / CLAIMS).write_text(text + "\n", encoding="utf-8")
    return {"verdicts": dict(sorted(Counter(each["verdict"] for each in claims).items()))}


def _judged(name: str, claim: Claim, readings: Readings) -> dict[str, Any]:
    found = [_inequality(each, readings) for each in claim.inequalities]
    verdicts = Counter(each["verdict"] for each in found)
    small = dict.fromkeys(model for each in claim.inequalities for model in each.miniatures)
    return {
        "name": name,
        "number": claim.number,
        "says": claim.says,
        "verdict": of_claim(verdicts),
        "about": [f"miniature of {model}" for model in small],
        "counts": dict(sorted(verdicts.items())),
        "inequalities": found,
    }


def _inequality(one: Inequality, readings: Readings) -> dict[str, Any]:
    pair = one.published[0] if one.published else None
    stated: dict[str, Any] = {
        "says": one.says,
        "figure": one.figures[0],
        "quantizer": one.quantizer,
        "metric": one.metric,
        "is": one.relation,
        **one.model_dump(include={"times", "tolerance", "because"}),
        "published": pair and {"left": pair[0], "right": pair[1], "ratio": _ratio(*pair)},
    }
    try:
        return stated | _measured(one, readings)
    except NotMeasured as missing:
        return stated | {"verdict": Verdict.NOT_MEASURED, "why": str(missing)}


def _measured(one: Inequality, readings: Readings) -> dict[str, Any]:
    """The numbers of an inequality; raises `NotMeasured` where there are none."""
    if one.unmeasured is not None:
        raise NotMeasured(one.unmeasured)
    every = Terms(readings, one.metric, one.draws or (FULL_PRECISION,), one.seeds)
    lefts, rights, effects = zip(*by_seed(every, lambda terms: sides(one, terms)), strict=True)
    left, right, effect = mean(lefts), mean(rights), over_seeds(effects)
    verdict = of_inequality(effect.value, effect.error)
    if verdict is Verdict.NOT_MEASURED:
        raise NotMeasured("it has no finite value")
    least = None if effect.error is None else SEEN * effect.error
    of_one_set = one.calibrated and len(one.draws) == 1
    one_set = of_one_set and (one.metric, one.draws[0]) not in readings.between
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


def _ratio(one: float, other: float) -> float | None:
    return one / other if other and math.isfinite(one / other) else None


def by_seed(terms: Terms, read: Callable[[Terms], Sequence[Estimate]]) -> Iterator[list[Estimate]]:
    """What is read at every seed, the means over draws."""
    for seed, found in zip(terms.seeds, terms.at_all(read), strict=True):
        yield [over_draws(each, f"draws of seed {seed}") for each in zip(*found, strict=True)]


def sides(one: Inequality, terms: Terms) -> tuple[Estimate, Estimate, Estimate]:
    """Left, right, and the effect in the claimed direction."""
    left, right, above = terms.value(one.left), terms.value(one.right), one.relation == "above"
    # What is tolerated is a share of the size of the right side, whatever its sign.
    slack = math.copysign(one.tolerance, right.value) * (-1 if above else 1)
    effect = left - right * Estimate(one.times * (1 + slack))
    return left, right, effect if above else effect * Estimate(-1.0)


class Effect(NamedTuple):
    """How far an inequality holds: the mean over seeds of the effect in the claimed direction; its
    paired standard error; the standard deviation of the seeds' effects, where there are several;
    the larger of the two, None where none is known: one seed, and nothing paired."""

    value: float
    stderr: float
    spread: float | None
    error: float | None


def over_seeds(effects: Sequence[Estimate]) -> Effect:
    """An effect from that of every seed. Seeds are validated on the same text, so that what they
    owe to it does not shrink with their number.

    The spread is that of seeds, not of their mean: the question is what one more seed would show,
    and of two or three seeds the error of their mean is known too badly to be trusted.
    """
    together = mean(effects)
    value, stderr = together.value, together.stderr
    if len(effects) == 1:
        return Effect(value, stderr, None, stderr or None)
    spread = float(np.std([each.value for each in effects], ddof=1))
    return Effect(value, stderr, spread, max(stderr, spread))


def of_inequality(value: float, error: float | None) -> Verdict:
    """Reproduced where the effect is more than two errors in the claimed direction, not reproduced
    where it is as much in the other one, else inconclusive, as where no error is known; not
    measured where there is no effect."""
    if not math.isfinite(value) or not math.isfinite(SEEN * (error or 0)):
        return Verdict.NOT_MEASURED
    if error is None or abs(value) <= SEEN * error:
        return Verdict.INCONCLUSIVE
    return Verdict.REPRODUCED if value > 0 else Verdict.NOT_REPRODUCED


def of_claim(verdicts: Iterable[Verdict]) -> Verdict:
    """Of a claim by its inequalities: not reproduced where one is contradicted, reproduced where
    all are; of others, one that is open outweighs one that is not measured."""
    return min(verdicts, key=[*Verdict].index, default=Verdict.NOT_MEASURED)
