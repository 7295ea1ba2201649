"""What every validation block contributes to a metric: from block to block, the losses of all
trajectories go up and down together."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.measurements import Inputs
from ptq_dynamics.measure.names import INCREASE, LOSS, Paired
from ptq_dynamics.measure.settings import Series


def contributions(metric: Paired, series: Series, inputs: Inputs) -> dict[str, np.ndarray]:
    """Contribution of every block to a metric, float64 [blocks], by checkpoint id: the metric is
    their mean."""
    read, before = measurements.block_losses, measurements.in_full_precision(series)
    losses = read(series, inputs)
    full = losses if metric == LOSS else read(before, inputs)
    return {name: _blocks(metric, full[name], found) for name, found in losses.items()}


def _blocks(metric: Paired, full: np.ndarray, losses: np.ndarray) -> np.ndarray:
    full, losses = full.astype(np.float64), losses.astype(np.float64)
    if metric == LOSS:
        return losses
    if metric == INCREASE:
        return losses - full
    # Of the ratio's mean to first order, see `measurements.relative_increase`.
    ratio = losses.mean() / full.mean()
    return (losses - ratio * full) / full.mean() + ratio - 1


def errors_of_comparison(blocks: Mapping[Any, np.ndarray]) -> dict[Any, float]:
    """Standard error of every mean over blocks [n] without what blocks have in common in most of
    them, their medians, which comparisons do not see; never more than its own standard error.
    Equally many blocks are taken to be the same text.

    Source: Cousineau (2005), with the correction of Morey (2008), for designs within subjects; the
    median, and the bound, because errors of one figure may differ by orders of magnitude.
    """
    found: dict[Any, float] = {}
    for size in dict.fromkeys(map(len, blocks.values())):
        alike = {key: values for key, values in blocks.items() if len(values) == size}
        table = np.stack([*alike.values()])
        root = np.sqrt(size)
        own = table.std(axis=1, ddof=1) / root
        count, finite = len(table), np.isfinite(own)
        if finite.sum() > 1:
            # Levels differ more than blocks: without them, a median is that of all points.
            rest = table - table.mean(axis=1, keepdims=True)
            rest = rest - np.median(rest[finite], axis=0)
            own = np.fmin(own, rest.std(axis=1, ddof=1) / root * np.sqrt(count / (count - 1)))
        found |= dict(zip(alike, own.tolist(), strict=True))
    return found
