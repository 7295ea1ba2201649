"""Metrics of quantized weights against curvature, with their rank correlation."""

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from pydantic import model_validator

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.columns import OrColumn, columns
from ptq_dynamics.figures.layout import Layout, Some
from ptq_dynamics.measure.names import EIGENVALUES, LOSS, VALUE, ErrorOrCurvature

if TYPE_CHECKING:
    import pandas as pd

    from ptq_dynamics.figures.curves import Curves
    from ptq_dynamics.figures.panels import Picture, Sheet

LEAST = 5  # points for a correlation
RESAMPLED = 1000  # times, for an interval
NUMBERS = ["x", "y", "low", "high", LOSS]


class FlatnessOptions(Strict):
    """Whether points are means over the seeds of runs where their losses are equal, instead of
    checkpoints."""

    at_equal_loss: bool = False


class Flatness(Layout):
    """A row for every quantized metric and quantizer, a column for every metric of curvature.
    Points are checkpoints; one at the start of a branch counts once."""

    layout: Literal["flatness"]
    options: FlatnessOptions = FlatnessOptions()
    quantizers: Some[str]
    metrics: Some[Annotated[ErrorOrCurvature, OrColumn()]]

    @model_validator(mode="after")
    def _has_curvature(self) -> Self:
        known = [n for n, column in columns().items() if not column.quantized and n != EIGENVALUES]
        if EIGENVALUES in self.metrics:
            raise ValueError(f"metrics has {EIGENVALUES}, of which a checkpoint has many; drop it")
        if not {*self.metrics} & {*known}:
            raise ValueError(f"metrics needs one of curvature: {', '.join(known)}")
        return self

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure, with rank correlations in titles."""
        from ptq_dynamics.figures.curves import over_runs

        data, wanted = sheet.data, list(sheet.data.wanted())
        rows = [(metric, quantizer) for metric, quantizer in wanted if quantizer]
        columns = [metric for metric, quantizer in wanted if not quantizer]
        shown, is_of_runs = set[str](), self.options.at_equal_loss
        for (metric, quantizer), other in product(rows, columns):
            table = _against(data, other, metric, quantizer)
            if is_of_runs:
                table = values_at_equal_loss(table)
            shown |= {*table.curve}
            if len(table) < LEAST:
                words = f"not known ({len(table)} points)"
            elif is_of_runs:
                words = "{:.2f} [{:.2f}, {:.2f}]".format(*interval(table))
            else:
                words = ", ".join(f"{key}{rho:.2f}" for key, rho in correlate(table).items())
            label, words = data.panel(other, None, "").y, words.replace("-", "−")
            panel = data.panel(metric, quantizer, label, f"{{}}\nρ {words}")
            panel = replace(panel, log_x=True, form="bars")
            sheet.add(panel, over_runs(table, "segment", spread=True) if is_of_runs else table)
        without = ", ".join(curve for curve in data.labels if curve not in shown)
        notes = [f"No point, as measured losses do not pass the equal loss: {without}."]
        is_large = is_of_runs and len(sheet.panels) > len(columns)
        notes = notes if without else []
        return sheet.publish(columns=len(columns), notes=notes, is_first_large=is_large)


def _against(data: "Curves", other: str, metric: str, quantizer: str) -> "pd.DataFrame":
    """Return points of a metric against another in full precision, one per checkpoint and seed."""
    from ptq_dynamics.figures.curves import POINT, placed

    against = data.rows(other, None).set_index(POINT)[[VALUE, "checkpoint"]].add_prefix("other_")
    table = data.with_loss(metric, quantizer).join(against, on=POINT, how="inner")
    table = table.drop_duplicates("other_checkpoint")
    points = placed(table, table.other_value, table.curve, loss=table[LOSS])
    return points[(points.x > 0) & points.y.notna()]


def values_at_equal_loss(table: "pd.DataFrame") -> "pd.DataFrame":
    """Return a point of each run and seed, interpolated where the loss of the run last falls to
    the highest final loss of the runs of this seed. Runs that begin below it are left out."""
    import pandas as pd

    points = list[dict[str, object]]()
    for _, runs in table.groupby("seeds", sort=False, dropna=False):
        level = runs.groupby("segment")[LOSS].last().max()
        for _, run in runs.groupby("segment", sort=False):
            for place in np.flatnonzero(run[LOSS] >= level)[-1:]:
                first, last = run.iloc[place], run.iloc[min(place + 1, len(run) - 1)]
                share = (first[LOSS] - level) / ((first[LOSS] - last[LOSS]) or 1)
                point = first[NUMBERS] + share * (last[NUMBERS] - first[NUMBERS])
                both = " ".join(dict.fromkeys([first.checkpoint_id, last.checkpoint_id]))
                points.append({**first, **point, "checkpoint_id": both})
    return pd.DataFrame(points, columns=table.columns).astype(table.dtypes)


def interval(table: "pd.DataFrame") -> tuple[float, float, float]:
    """Return Spearman's ρ of columns x and y, with a 95 % interval by resampled runs and seeds."""
    from scipy.stats import rankdata

    table = table.reset_index(drop=True)
    grid = table.assign(row=table.index).pivot(index="segment", columns="seeds", values="row")
    chance, correlations = np.random.default_rng(0), list[float]()
    values, places = table[["x", "y"]].to_numpy().T, grid.to_numpy()
    for _ in range(RESAMPLED):
        rows = places[np.ix_(*(chance.integers(n, size=n) for n in grid.shape))].ravel()
        ranks = rankdata(values[:, rows[~np.isnan(rows)].astype(int)], axis=1)
        with np.errstate(invalid="ignore"):  # undefined if each draw is the same run
            correlations.append(float(np.corrcoef(ranks)[0, 1]))
    low, high = np.nanquantile(correlations, (0.025, 0.975))
    return float(table.x.corr(table.y, "spearman")), float(low), float(high)


def correlate(table: "pd.DataFrame") -> dict[str, float]:
    """Return Spearman's ρ of columns x and y, and the partial one given the loss. Points of
    one run are dependent, so there is no interval."""
    rho = table[["x", "y", LOSS]].corr("spearman").to_numpy()
    xy, xz, yz = float(rho[0, 1]), float(rho[0, 2]), float(rho[1, 2])
    rhos = {"": xy}
    if scale := ((1 - xz**2) * (1 - yz**2)) ** 0.5:
        rhos["given the loss "] = (xy - xz * yz) / scale
    return rhos
