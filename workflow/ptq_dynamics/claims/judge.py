"""The stage that judges each claim by one estimand, from the raw results of its figures.

An interval holds 95 % of the bootstrap replicates. Claims of the paper, expectations beyond it, and
deployed rows are three families of tests. The step-down test of Holm (1979) keeps the chance of any
false outcome within a family at 5 %."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from ptq_dynamics.claims.beyond import BEYOND, EVERY
from ptq_dynamics.claims.bootstrap import REPLICATES, Bootstrap
from ptq_dynamics.claims.definitions import (
    CLAIMS,
    Claim,
    ClaimsSettings,
    Drawn,
    Judged,
    MeasuredRow,
    Row,
)
from ptq_dynamics.claims.forest import forest, save_plot
from ptq_dynamics.claims.samples import FEW, Sample, Samples
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.measurements import Inputs

LEVEL, POWER, MOST_SEEDS = 0.05, 0.8, 1000
INFINITE = 1e30  # a larger ratio has no finite value
# Outcomes of a claim in one build.
AGREES, OPPOSES, UNRESOLVED = "agrees", "opposes", "unresolved"
NOT_TESTABLE, NOT_MEASURED = "not testable", "not measured"
# Outcomes of a deployed row, by those of a test of `above`.
DEPLOYED = {AGREES: "higher", OPPOSES: "lower", UNRESOLVED: UNRESOLVED}


def run(context: Context[ClaimsSettings]) -> Mapping[str, object]:
    """Write claims.json and the forest plot; the fact is the number of claims by outcome."""
    settings = context.settings
    claims = judged(settings, lambda claim: read_samples(claim, settings.figures, context.inputs))
    content = {"scale": settings.scale, "replicates": REPLICATES, "claims": claims}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    (context.out / CLAIMS).write_text(text + "\n", encoding="utf-8")
    save_plot(forest({settings.scale: claims}), context.out)
    return {"outcomes": dict(sorted(Counter(claim["outcome"] for claim in claims).items()))}


def read_samples(claim: Claim, figures: Mapping[str, Drawn], inputs: Inputs) -> Bootstrap:
    """Return the data of a claim's figures, with the calibration sets that all of these have."""
    shown = [figures[name] for name in claim.figures]
    draws = dict[str, tuple[str, ...]]()
    for name, sets in chain.from_iterable(figure.draws.items() for figure in shown):
        draws[name] = min(draws.get(name, sets), sets, key=len)
    series = chain.from_iterable(figure.series for figure in shown)
    return Bootstrap(series, chain.from_iterable(f.runs for f in shown), draws, inputs)


def judged(settings: ClaimsSettings, curves: Callable[[Claim], Bootstrap]) -> list[Judged]:
    """Return every claim with its rows and its outcome, as claims.json holds them."""
    claims, tested = list[Judged](), dict[str, tuple[Claim, Samples, Sample]]()
    after = dict[str, tuple[float, float]]()
    for claim in (claim for claim in EVERY if claim.name in settings.claims):
        here = settings.claims[claim.name]
        judged: Judged = {
            "name": claim.name,
            "number": claim.number,
            "says": here.says,
            "figures": list(claim.figures),
            "about": list(here.miniatures),
            "rows": [],
            "expected": claim.direction,
            "margin": claim.margin,
            "seeds": list(here.seeds),
        }
        claims.append(judged)
        if here.unmeasured is not None:
            judged |= {"outcome": NOT_MEASURED, "why": here.unmeasured}
            continue
        view, rows = Samples(curves(claim), here.seeds, numbers=settings.numbers), judged["rows"]
        for row in claim.read(view):
            rows.append(_measured(row, view.missing))
            if len(rows) == 1 and "low" in rows[0]:
                tested[claim.name] = claim, view, row.sample
            if row.deployed and "low" in rows[-1]:
                after[f"{claim.name} {row.says}"] = _chances(row.sample, "above")
            view.missing.clear()
        if claim.in_small is not None and here.miniatures:
            tested.pop(claim.name, None)
            judged |= {"outcome": NOT_TESTABLE, "why": claim.in_small}
        elif claim.name not in tested:
            outcome = UNRESOLVED if "value" in rows[0] else NOT_MEASURED
            judged |= {"outcome": outcome, "why": rows[0]["why"]}
    # Expectations beyond the paper are a family of tests of their own.
    families = dict[str, tuple[float, float]](), dict[str, tuple[float, float]]()
    for name, (claim, _, sample) in tested.items():
        families[claim in BEYOND][name] = _chances(sample, claim.direction, claim.margin)
    outcomes, seen = _holm(families[0]) | _holm(families[1]), _holm(after)
    for judged in claims:
        if (name := judged["name"]) in tested:
            claim, view, sample = tested[name]
            judged["outcome"], level = outcomes[name]
            tail = level if claim.direction == "alike" else level / 2
            judged["decides"] = _ends(sample[1:], tail)
            if judged["outcome"] == UNRESOLVED and len(view.seeds) >= FEW:
                alone = (replace(view, seeds=(seed,)) for seed in view.seeds)
                ratios = [float(next(claim.read(one)).sample[0]) for one in alone]
                level = LEVEL / len(families[claim in BEYOND])
                if count := seeds_needed(ratios, level, claim.margin):
                    judged["seeds_needed"] = count
        for measured in judged["rows"]:
            if result := seen.get(f"{name} {measured['says']}"):
                measured["outcome"] = DEPLOYED[result[0]]
    return claims


def seeds_needed(ratios: Sequence[float], level: float, margin: float = 1.0) -> int | None:
    """Return how many seeds would decide, by a t test of the logarithms against 1 or the nearer
    end of the margin; None if their ratios have no logarithms, or too many are needed."""
    from scipy.special import nctdtr, stdtrit

    if min(ratios) <= 0 or not all(map(math.isfinite, ratios)) or len({*ratios}) == 1:
        return None
    logs = np.log(ratios)
    effect = abs(abs(logs.mean()) - math.log(margin)) / logs.std(ddof=1)
    for count in range(2, MOST_SEEDS + 1):
        limit = stdtrit(count - 1, 1 - level / 2)
        if nctdtr(count - 1, effect * count**0.5, limit) <= 1 - POWER:
            return count
    return None


def _measured(row: Row, missing: list[str]) -> MeasuredRow:
    stated: MeasuredRow = {"says": row.says, "unit": row.unit, "published": row.published}
    value, others = float(row.sample[0]), row.sample[1:]
    if not np.isfinite(value):
        return {**stated, "why": missing[0] if missing else "it has no finite value"}
    if np.isnan(others).any() or np.ptp(others) <= 1e-11 * abs(value):
        return {**stated, "value": value, "why": "its error is not known"}
    others = np.clip(others, -(INFINITE**2), INFINITE**2)
    low, high = np.quantile(others, [LEVEL / 2, 1 - LEVEL / 2])
    if not low <= value <= high or low < -INFINITE:
        return {**stated, "why": "its divisor cannot be distinguished from zero"}
    stated |= {"value": value, "low": float(low)}
    if high > INFINITE:
        return {**stated, "why": "its interval has no upper end, as its divisor may be zero"}
    stated["high"] = float(high)
    # About 3.9 standard errors: the test has a power of 80 % beside twenty other claims.
    return {**stated, "smallest": float(high - low)}


def _chances(sample: Sample, direction: str, margin: float = 1.0) -> tuple[float, float]:
    """Return p-values for the claimed direction (`alike`: within the margin), and against it."""
    others = sample[1:]

    def share(held: np.ndarray) -> float:
        return max(float(held.mean()), 1 / REPLICATES)

    if direction == "alike":
        outside = max(share(others >= margin), share(others <= 1 / margin))
        return outside, share((others < margin) & (others > 1 / margin))
    above, below = 2 * share(~(others > 1)), 2 * share(~(others < 1))
    return (above, below) if direction == "above" else (below, above)


def _ends(others: np.ndarray, tail: float) -> tuple[float, float]:
    """Return the ends of the interval that leaves out at most the share `tail` at each end."""
    ordered = np.sort(np.clip(others, -INFINITE, INFINITE))
    left_out = int(tail * len(ordered) + 1e-9)
    return float(ordered[left_out]), float(ordered[-1 - left_out])


def _holm(tests: Mapping[str, tuple[float, float]]) -> dict[str, tuple[str, float]]:
    """Return outcomes, and the level of each test, by the step-down procedure of Holm. Tests after
    the first one that fails have its level."""
    order = sorted(tests, key=lambda name: min(tests[name]))
    outcomes, goes_on, level = dict[str, tuple[str, float]](), True, LEVEL
    for place, name in enumerate(order):
        agrees, opposes = tests[name]
        level = LEVEL / (len(order) - place) if goes_on else level
        goes_on = goes_on and min(agrees, opposes) <= level
        seen = AGREES if agrees < opposes else OPPOSES
        outcomes[name] = seen if goes_on else UNRESOLVED, level
    return outcomes
