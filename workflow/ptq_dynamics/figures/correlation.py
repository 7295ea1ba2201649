"""Rank correlations over the points of runs, with intervals from resampled runs: points of one run
are not independent of each other."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 2000
LEAST = 5  # points of a correlation
FEWEST = 4  # runs of an interval


class Correlation(NamedTuple):
    """Spearman's ρ and its 95 % interval, where there are enough runs for one."""

    rho: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.rho:.2f}{interval}".replace("-", "−" if interval else "-")


def pooled(runs: Sequence[np.ndarray]) -> Correlation | None:
    """Spearman's ρ of the first two columns over the points of all runs. None where it has none."""
    return _resampled(runs, lambda chosen: spearman(*np.concatenate(chosen).T[:2]))


def partial(runs: Sequence[np.ndarray]) -> Correlation | None:
    """Spearman's partial ρ of the first two columns given the third."""

    def statistic(chosen: Sequence[np.ndarray]) -> float:
        x, y, z = np.concatenate(chosen).T
        xy, xz, yz = spearman(x, y), spearman(x, z), spearman(y, z)
        scale = np.sqrt((1 - xz**2) * (1 - yz**2))
        return float((xy - xz * yz) / scale) if scale else np.nan

    return _resampled(runs, statistic)


def within(runs: Sequence[np.ndarray]) -> Correlation | None:
    """The mean over runs of Spearman's ρ within each, weighted by its points."""
    enough = [run for run in runs if len(run) >= LEAST]
    found = [np.array([spearman(*run.T[:2]), len(run)]) for run in enough]

    def statistic(chosen: Sequence[np.ndarray]) -> float:
        values, weights = np.transpose(chosen)
        return float(np.average(values, weights=weights))

    return _resampled(found, statistic)


def _resampled(
    runs: Sequence[np.ndarray], statistic: Callable[[Sequence[np.ndarray]], float]
) -> Correlation | None:
    """A statistic of runs, each [n, 3], and its 95 % percentile interval."""
    rho = statistic(runs) if runs else np.nan
    if not np.isfinite(rho):
        return None
    if len(runs) < FEWEST:
        return Correlation(rho, None, None)
    draws = np.random.default_rng(0).integers(len(runs), size=(RESAMPLES, len(runs)))
    found = [statistic([runs[place] for place in draw]) for draw in draws]
    low, high = np.nanquantile(found, [0.025, 0.975])
    return Correlation(rho, float(low), float(high))


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's ρ of two samples [n]: Pearson's of the ranks."""
    one, other = (ranks - ranks.mean() for ranks in (_ranks(x), _ranks(y)))
    scale = np.sqrt((one**2).sum() * (other**2).sum())
    return float((one * other).sum() / scale) if scale else np.nan


def _ranks(x: np.ndarray) -> np.ndarray:
    # As scipy's rankdata, in a quarter of the time: resampling asks for tens of thousands.
    _, places, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[places]
