"""Metrics of quantized weights against curvature, with their rank correlation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.around import head, legend
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.footer import footer
from ptq_dynamics.figures.panels import HEIGHTS, plain_log_ticks, save, subplots
from ptq_dynamics.figures.resolution import resolve
from ptq_dynamics.figures.settings import FigureSettings
from ptq_dynamics.figures.style import lines
from ptq_dynamics.figures.words import letters
from ptq_dynamics.measure.names import LOSS, SEED

RESAMPLES = 2000
LEAST = 5  # points of a correlation
FEWEST = 4  # runs of an interval


class Correlation(NamedTuple):
    """Spearman's ρ and its 95 % interval, where there are enough runs for one."""

    rho: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.rho:.2f}"
        return f"{self.rho:.2f} [{self.low:.2f}, {self.high:.2f}]".replace("-", "−")


def run(context: Context[FigureSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure, a row for every metric of quantized weights and quantizer, a column
    for every metric of curvature; runs are lines. Facts: Spearman's ρ of all points, of all points
    given their loss in full precision, and within runs, with 95 % intervals from resampling runs.

    Weights that lie on two trajectories, where one branches from the other, count once.
    """
    curves = Curves(context)
    wanted = list(curves.wanted())
    rows = [(metric, quantizer) for metric, quantizer in wanted if quantizer]
    columns = [metric for metric, quantizer in wanted if not quantizer]
    height = HEIGHTS[min(len(columns), 3) - 1] * len(rows)
    figure, axes = subplots(len(rows), len(columns), height)
    styles = lines(curves.labels)
    parts, panels = [], []
    facts: dict[str, dict[str, Any]] = {}
    places = product(rows, columns)
    for ax, letter, ((metric, quantizer), other) in zip(axes, letters(), places, strict=False):
        names = [other, *([metric, quantizer] if len(rows) > 1 else [])]
        name = ", ".join(names)
        table = curves.against_metric(name, other, metric, quantizer)
        table = table[(table.x > 0) & table.y.notna()]
        correlation = f"n = {len(table)}, too few for a rank correlation"
        if len(table) >= LEAST:
            runs, segments = _points(table, "curve"), _points(table, "segment")
            tried = {
                "all points": pooled(runs),
                "given the loss": partial(runs),
                "within runs": within(segments),
            }
            found = {key: value for key, value in tried.items() if value is not None}
            facts[name] = {key: value._asdict() for key, value in found.items()}
            facts[name] |= {"points": len(table), "runs": len(runs)}
            correlation = "\n".join(f"ρ {key}: {value}" for key, value in found.items())
        for (curve, _, _), part in table.groupby(["curve", "segment", SEED], sort=False):
            line = styles[str(curve)]
            spread = [part.y - part.low, part.high - part.y]
            ax.errorbar(
                part.x,
                part.y,
                yerr=spread,
                linestyle=line.dash,
                linewidth=0.5,
                color=line.color,
                marker=line.marker,
                elinewidth=0.5,
                label=curve,
            )
        ax.set_xscale("log")
        plain_log_ticks(ax.xaxis)
        against = curves.panel(letter, other, None, "")
        shown = curves.panel(letter, metric, quantizer, against.y)
        if shown.percent_y:
            ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.2g}")
        ax.set(xlabel=shown.x, ylabel=shown.y)
        ax.set_title(f"{shown.title}\n{correlation}")
        parts.append(table)
        panels.append(replace(shown, name=letter))
    legend(figure, axes, {})
    lettered = [part.assign(panel=panel.name) for part, panel in zip(parts, panels, strict=True)]
    _, about = resolve(context.settings, pd.concat(lettered), panels, means=False)
    head(figure, "; ".join([footer(context), *about]))
    save(figure, pd.concat(parts), context)
    return facts


def _points(table: pd.DataFrame, by: str) -> list[np.ndarray]:
    """Curvature, metric and loss at the points of every run at every seed, each [n, 3]."""
    return [part[["x", "y", LOSS]].to_numpy() for _, part in table.groupby([by, SEED], sort=False)]


def pooled(runs: Sequence[np.ndarray]) -> Correlation | None:
    """Spearman's ρ of the first two columns over the points of all runs, and the 95 % percentile
    interval of resampled runs: points of one run are not independent of each other. None where it
    has none."""
    return _resampled(runs, lambda chosen: _spearman(*np.concatenate(chosen).T[:2]))


def partial(runs: Sequence[np.ndarray]) -> Correlation | None:
    """Spearman's partial ρ of the first two columns given the third, and the same interval."""
    return _resampled(runs, lambda chosen: _partial(np.concatenate(chosen)))


def within(runs: Sequence[np.ndarray]) -> Correlation | None:
    """The mean over runs of Spearman's ρ within each, weighted by its points, and the same
    interval."""
    enough = [run for run in runs if len(run) >= LEAST]
    found = [np.array([_spearman(*run.T[:2]), len(run)]) for run in enough]
    return _resampled(found, _weighted_mean)


def _weighted_mean(found: Sequence[np.ndarray]) -> float:
    values, weights = np.transpose(found)
    return float(np.average(values, weights=weights))


def _resampled(
    runs: Sequence[np.ndarray], statistic: Callable[[Sequence[np.ndarray]], float]
) -> Correlation | None:
    rho = statistic(runs) if runs else np.nan
    if not np.isfinite(rho):
        return None
    if len(runs) < FEWEST:
        return Correlation(rho, None, None)
    rng = np.random.default_rng(0)
    draws = rng.integers(len(runs), size=(RESAMPLES, len(runs)))
    found = [statistic([runs[place] for place in draw]) for draw in draws]
    low, high = np.nanquantile(found, [0.025, 0.975])
    return Correlation(rho, float(low), float(high))


def _partial(points: np.ndarray) -> float:
    x, y, z = points.T
    xy, xz, yz = _spearman(x, y), _spearman(x, z), _spearman(y, z)
    scale = np.sqrt((1 - xz**2) * (1 - yz**2))
    return float((xy - xz * yz) / scale) if scale else np.nan


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's ρ of two samples [n]: Pearson's of the ranks."""
    one, other = (ranks - ranks.mean() for ranks in (_ranks(x), _ranks(y)))
    scale = np.sqrt((one**2).sum() * (other**2).sum())
    return float((one * other).sum() / scale) if scale else np.nan


def _ranks(x: np.ndarray) -> np.ndarray:
    """Ranks of a sample [n], equal values at the mean of theirs; scipy's rankdata takes four times
    as long, and resampling asks for them tens of thousands of times."""
    _, places, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[places]
