"""How far another calibration set moves what is measured under a quantizer."""

import math
from collections.abc import Iterable

import numpy as np

from ptq_dynamics.claims.readings import Readings
from ptq_dynamics.claims.settings import Term
from ptq_dynamics.claims.terms import Deviations


def deviations(terms: Iterable[Term], seeds: Iterable[int], readings: Readings) -> Deviations:
    """The standard deviation between the calibration sets of a quantizer, wherever some terms read
    it with several: pooled over the last checkpoints of their trajectories at all seeds.

    Who has one set alone takes this as the error of that.
    """
    seeds = tuple(seeds)
    variances = dict[tuple[str, str], list[float]]()
    seen = set[tuple[str, str, tuple[str, ...]]]()
    for term in terms:
        for name in term.of:
            key = (name, term.metric, term.draws)
            if len(term.draws) < 2 or key in seen:
                continue
            seen.add(key)
            for seed in seeds:
                ends = [readings.points(name, term.metric, draw, seed)[-1:] for draw in term.draws]
                values = [point.value.value for points in ends for point in points]
                # A run that diverged under one of them says nothing of the others.
                if len(values) == len(term.draws) and np.isfinite(values).all():
                    variance = float(np.var(values, ddof=1))
                    variances.setdefault((term.metric, term.draws[0]), []).append(variance)
    return {key: math.sqrt(float(np.mean(found))) for key, found in variances.items()}
