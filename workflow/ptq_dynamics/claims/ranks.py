"""Rank correlation over points that belong together in groups, as checkpoints to runs."""

import math
from collections.abc import Sequence

import numpy as np

from ptq_dynamics.claims.estimates import Estimate, independent

# Groups of a correlation whose error is known.
FEWEST = 3


def correlation(groups: Sequence[np.ndarray], source: str) -> Estimate:
    """Spearman's ρ of two columns over the points of all groups, [n, 2] each, and its standard
    error by leaving out one group at a time (the jackknife): points of one run are not independent
    of each other. NaN where it is not defined, or of fewer than three groups."""
    if len(groups) < FEWEST:
        return Estimate(math.nan)
    left = [[*groups[:place], *groups[place + 1 :]] for place in range(len(groups))]
    without = np.array([spearman(np.concatenate(each)) for each in left])
    n = len(groups)
    error = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    return independent(spearman(np.concatenate(groups)), error, source)


def spearman(points: np.ndarray) -> float:
    """Spearman's ρ of the columns of points [n, 2]: Pearson's of the ranks; NaN where one column
    has one value alone."""
    one, other = (ranks - ranks.mean() for ranks in map(_ranks, points.T))
    scale = math.sqrt(float((one**2).sum() * (other**2).sum()))
    return float((one * other).sum()) / scale if scale else math.nan


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks of values [n], equal ones at the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (counts.cumsum() - (counts - 1) / 2)[places]
    return ranks
