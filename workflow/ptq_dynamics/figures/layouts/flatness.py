"""Metrics of quantized weights against curvature, with their rank correlation, whose interval is
from resampled runs: points of one run are not independent of each other."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import model_validator

from ptq_dynamics.figures.layout import Measured, Some
from ptq_dynamics.measure.correlation import spearman
from ptq_dynamics.measure.names import LOSS, PROBES, SEED, STEP, VALUE, ErrorOrCurvature

RESAMPLES = 2000
LEAST = 5  # points of a correlation
FEWEST = 4  # runs of an interval


class Flatness(Measured):
    """A row for every metric of quantized weights and quantizer, a column for every metric of
    curvature, a point a checkpoint; runs are lines. Weights that lie on two trajectories, where one
    branches from the other, count once."""

    layout: Literal["flatness"]
    quantizers: Some[str]
    metrics: Some[ErrorOrCurvature]

    @model_validator(mode="after")
    def _has_curvature(self) -> Self:
        self._has(frozenset(PROBES["sharpness"]), "its horizontal axis")
        return self

    def draw(self, sheet: Any) -> Any:
        """Draw the figure. Facts: Spearman's ρ of all points, the same given their loss in full
        precision, and within runs, with 95 % intervals from resampling runs."""
        data, wanted = sheet.data, list(sheet.data.wanted())
        rows = [(metric, quantizer) for metric, quantizer in wanted if quantizer]
        columns = [metric for metric, quantizer in wanted if not quantizer]
        names, facts = dict[str, str](), dict[str, Any]()
        for (metric, quantizer), other in product(rows, columns):
            table = _against(data, other, metric, quantizer)
            correlation, found = _correlate(table)
            label, title = data.panel(other, None, "").y, f"{{}}\n{correlation}"
            sheet.add(data.panel(metric, quantizer, label, title, log_x=True), table)
            name = ", ".join([other, *([metric, quantizer] if len(rows) > 1 else [])])
            names[sheet.panels[-1].name] = name
            facts |= {name: found} if found else {}
        picture = sheet.publish(columns=len(columns), draw=_draw_panel)
        table = picture.table.assign(panel=picture.table.panel.map(names))
        return picture._replace(table=table, facts=picture.facts | facts)


def _against(data: Any, other: str, metric: str, quantizer: str) -> Any:
    """A metric against another one in full precision, a point a checkpoint and seed, with its loss
    in full precision: weights that lie on several trajectories once, with the first."""
    import pandas as pd

    from ptq_dynamics.figures.curves import POINT, band

    before, against = (data.rows(each, None).set_index(POINT) for each in (LOSS, other))
    table = data.rows(metric, quantizer).sort_values(STEP, kind="stable")
    table = table.join(before[VALUE].rename(LOSS), on=POINT)
    table = table.join(against[[VALUE, "checkpoint"]].add_prefix("other_"), on=POINT, how="inner")
    table = data.members.merge(table, on="trajectory").drop_duplicates("other_checkpoint")
    points = {"curve": table.curve, "segment": table.trajectory, "x": table.other_value}
    whole = pd.DataFrame({**points, **band(table), SEED: table.seed, LOSS: table[LOSS]})
    return whole[(whole.x > 0) & whole.y.notna()]


def _draw_panel(ax: Any, panel: Any, table: Any, styles: Any) -> None:
    from ptq_dynamics.figures.panels import error_bars, plain_log_ticks

    for (curve, _, _), part in table.groupby(["curve", "segment", SEED], sort=False):
        look = {"linestyle": styles[curve].dash, "linewidth": 0.5, "elinewidth": 0.5}
        error_bars(ax, part, styles[curve], curve, **look)
    ax.set_xscale("log")
    plain_log_ticks(ax.xaxis)
    ax.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)


def _correlate(table: Any) -> tuple[str, dict[str, Any]]:
    """Correlations of the points of a panel, in words and as facts; none of too few points."""
    if len(table) < LEAST:
        return f"n = {len(table)}, too few for a rank correlation", {}
    # Curvature, metric and loss at the points of every run at every seed, each [n, 3].
    runs, segments = (
        [part[["x", "y", LOSS]].to_numpy() for _, part in table.groupby([by, SEED], sort=False)]
        for by in ("curve", "segment")
    )
    tried = {"all points": pooled(runs), "given the loss": partial(runs)}
    tried |= {"within runs": within(segments)}
    found = {key: each for key, each in tried.items() if each is not None}
    facts: dict[str, Any] = {key: each._asdict() for key, each in found.items()}
    words = "\n".join(f"ρ {key}: {each}" for key, each in found.items())
    return words, {**facts, "points": len(table), "runs": len(runs)}


class Correlation(NamedTuple):
    """Spearman's ρ and its 95 % interval, where there are enough runs for one."""

    rho: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.rho:.2f}{interval}".replace("-", "−")


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
