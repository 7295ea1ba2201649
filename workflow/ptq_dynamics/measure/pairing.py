"""Differences between trajectories, paired over the validation blocks that both are measured on.

Values and standard errors alone cannot give the error of a difference: the losses of two
trajectories go up and down together from block to block.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.measure.joining import Inputs, block_losses, in_full_precision, manifests_of
from ptq_dynamics.measure.measurements import mean_and_error
from ptq_dynamics.measure.names import INCREASE, LOSS, Paired
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.train.trajectory import Trajectory

K = TypeVar("K")


def difference(
    metric: Paired, pairs: Iterable[tuple[Series, Series]], inputs: Inputs
) -> dict[int, tuple[float, float]]:
    """A metric of one series less that of another, the mean over pairs of calibration sets, and its
    standard error, by step, wherever all have a checkpoint; `inputs` are those of `joining.join`.

    The error is that of the mean over blocks, to first order for the quantization error. Raises
    `Problem` when two are not measured on equally many blocks, or one has a step twice.
    """
    sets = [_differences(metric, *pair, inputs) for pair in pairs]
    common = set.intersection(*({*each} for each in sets)) if sets else set()
    return {
        step: mean_and_error(np.mean([each[step] for each in sets], axis=0))
        for step in sorted(common)
    }


def _differences(
    metric: Paired, one: Series, other: Series, inputs: Inputs
) -> dict[int, np.ndarray]:
    found = {}
    mine, theirs = _blocks(metric, one, inputs), _blocks(metric, other, inputs)
    for step in mine.keys() & theirs.keys():
        values, others = mine[step], theirs[step]
        if values.shape != others.shape:
            raise Problem(
                f"{one.trajectory} is measured on {len(values)} blocks and {other.trajectory} on "
                f"{len(others)}, so they cannot be compared block by block; compare trajectories "
                "of one context"
            )
        found[step] = values - others
    return found


def contributions(metric: Paired, series: Series, inputs: Inputs) -> dict[str, np.ndarray]:
    """Contribution of every block to a metric, float64 [blocks], by checkpoint id: the metric is
    their mean."""
    losses = block_losses(series, inputs)
    full = losses if metric == LOSS else block_losses(in_full_precision(series), inputs)
    return {name: _contributions(metric, full[name], found) for name, found in losses.items()}


def errors_of_comparison(blocks: Mapping[K, np.ndarray]) -> dict[K, float]:
    """Standard error of every mean over blocks [n] without what blocks have in common in most of
    them, their medians, which comparisons do not see; never more than its own standard error.

    Two that are equally exact differ by more than chance where they are √2 · 2 of these apart.
    Source: Cousineau (2005), with the correction of Morey (2008), for designs within subjects; the
    median, and the bound, because errors of one figure may differ by orders of magnitude.
    """
    found: dict[K, float] = {}
    for alike in _alike(blocks.items()):
        table = np.stack([values for _, values in alike])
        own = _standard_errors(table)
        count, finite = len(table), np.isfinite(own)
        if finite.sum() > 1:
            # Levels differ more than blocks: without them, a median is that of all points.
            rest = table - table.mean(axis=1, keepdims=True)
            rest = rest - np.median(rest[finite], axis=0)
            own = np.fmin(own, _standard_errors(rest) * np.sqrt(count / (count - 1)))
        found |= {key: float(error) for (key, _), error in zip(alike, own, strict=True)}
    return found


def _standard_errors(table: np.ndarray) -> np.ndarray:
    """Of the mean of every row, [rows, n]."""
    errors: np.ndarray = table.std(axis=1, ddof=1) / np.sqrt(table.shape[1])
    return errors


def _alike(
    blocks: Iterable[tuple[K, np.ndarray]],
) -> Iterable[list[tuple[K, np.ndarray]]]:
    """Those with equally many blocks, which are taken to be the same text."""
    groups: dict[int, list[tuple[K, np.ndarray]]] = {}
    for key, values in blocks:
        groups.setdefault(len(values), []).append((key, values))
    return groups.values()


def _blocks(metric: Paired, series: Series, inputs: Inputs) -> dict[int, np.ndarray]:
    """The contributions by step."""
    steps = {
        checkpoint.id: checkpoint.step
        for checkpoint in Trajectory(manifests_of(series, inputs)).checkpoints
    }
    blocks = contributions(metric, series, inputs)
    found: dict[int, np.ndarray] = {}
    for name, step in steps.items():
        if step in found:
            raise Problem(
                f"{series.trajectory} has several checkpoints at step {step} (one is {name}), so "
                "it cannot be compared step by step; compare trajectories without repeated steps"
            )
        if step is not None:
            found[step] = blocks[name]
    return found


def _contributions(metric: Paired, full: np.ndarray, losses: np.ndarray) -> np.ndarray:
    full, losses = full.astype(np.float64), losses.astype(np.float64)
    if metric == LOSS:
        return losses
    if metric == INCREASE:
        return losses - full
    # Of the ratio's mean to first order, see `measurements.relative_increase`.
    ratio = losses.mean() / full.mean()
    return (losses - ratio * full) / full.mean() + ratio - 1
