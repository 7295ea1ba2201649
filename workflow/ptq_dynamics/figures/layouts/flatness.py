"""Metrics of quantized weights against curvature, with their rank correlation."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import bootstrap, rankdata

from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.footer import footer
from ptq_dynamics.figures.panels import HEIGHT, WIDTH, head, legend, plain_log_ticks, save, subplots
from ptq_dynamics.figures.settings import FigureSettings
from ptq_dynamics.figures.style import LINES
from ptq_dynamics.figures.words import letters
from ptq_dynamics.jobs.context import Context

RESAMPLES = 2000
LEAST = 5  # points of a correlation


def run(context: Context[FigureSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure, a row for every metric of quantized weights and quantizer, a column
    for every metric of curvature; facts: Spearman's ρ with its 95 % bootstrap interval.

    Weights that lie on two trajectories, where one branches from the other, count once.
    """
    curves = Curves(context)
    wanted = list(curves.wanted())
    rows = [(metric, quantizer) for metric, quantizer in wanted if quantizer]
    columns = [metric for metric, quantizer in wanted if not quantizer]
    figure, axes = subplots(len(rows), len(columns), WIDTH, HEIGHT)
    parts, facts = [], {}
    places = product(rows, columns)
    for ax, letter, ((metric, quantizer), other) in zip(axes, letters(), places, strict=False):
        names = [other, *([metric, quantizer] if len(rows) > 1 else [])]
        name = ", ".join(names)
        table = curves.against_metric(name, other, metric, quantizer)
        table = table[(table.x > 0) & table.y.notna()]
        correlation = f"n = {len(table)}, too few for a rank correlation"
        if len(table) >= LEAST:
            rho, low, high = rank_correlation(table.x.to_numpy(), table.y.to_numpy())
            facts[name] = {"rho": rho, "low": low, "high": high, "points": len(table)}
            correlation = f"Spearman ρ = {rho:.2f} [{low:.2f}, {high:.2f}], n = {len(table)}"
        for curve, line in zip(curves.labels, LINES, strict=False):
            part = table[table.curve == curve]
            spread = [part.y - part.low, part.high - part.y]
            ax.errorbar(
                part.x,
                part.y,
                yerr=spread,
                linestyle="none",
                color=line.color,
                marker=line.marker,
                elinewidth=0.6,
                label=curve,
            )
        ax.set_xscale("log")
        plain_log_ticks(ax.xaxis)
        against = curves.panel(letter, other, None, "")
        shown = curves.panel(letter, metric, quantizer, against.y)
        if shown.percent_y:
            ax.yaxis.set_major_formatter("{x:.2%}")
        ax.set(xlabel=shown.x, ylabel=shown.y)
        ax.set_title(f"{shown.title}\n{correlation}")
        parts.append(table)
    legend(figure, axes)
    head(figure, footer(context))
    save(figure, pd.concat(parts), context.out, context.name)
    return facts


def rank_correlation(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Spearman's ρ of two samples [n], and its 95 % percentile-bootstrap interval over pairs.

    Checkpoints of one run are not independent, so the interval is a lower bound of the doubt.
    """
    result = bootstrap(
        (x, y),
        _spearman,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    interval = result.confidence_interval
    return float(_spearman(x, y)), float(interval.low), float(interval.high)


def _spearman(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    """Spearman's ρ along an axis: Pearson's of the ranks."""
    ranks = [rankdata(values, axis=axis) for values in (x, y)]
    one, other = (found - found.mean(axis=axis, keepdims=True) for found in ranks)
    scale = np.sqrt((one**2).sum(axis=axis) * (other**2).sum(axis=axis))
    return (one * other).sum(axis=axis) / scale
