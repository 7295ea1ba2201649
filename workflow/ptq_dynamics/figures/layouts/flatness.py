"""Metrics of quantized weights against curvature, with their rank correlation."""

from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import model_validator

from ptq_dynamics.base.fields import Once
from ptq_dynamics.figures.correlation import LEAST, partial, pooled, within
from ptq_dynamics.figures.layout import Measured, Quantizers
from ptq_dynamics.measure.names import LOSS, PROBES, SEED, ErrorOrCurvature

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet


class Flatness(Measured):
    """A row for every metric of quantized weights and quantizer, a column for every metric of
    curvature, a point a checkpoint; runs are lines. Weights that lie on two trajectories, where one
    branches from the other, count once."""

    layout: Literal["flatness"]
    quantizers: Quantizers
    metrics: Annotated[tuple[ErrorOrCurvature, ...], Once]

    @model_validator(mode="after")
    def _has_curvature(self) -> Self:
        self._has(frozenset(PROBES["sharpness"]), "its horizontal axis")
        return self

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure. Facts: Spearman's ρ of all points, the same given their loss in full
        precision, and within runs, with 95 % intervals from resampling runs."""
        import pandas as pd

        from ptq_dynamics.figures.around import head, legend
        from ptq_dynamics.figures.panels import (
            HEIGHTS,
            Picture,
            error_bars,
            plain_log_ticks,
            subplots,
        )
        from ptq_dynamics.figures.resolution import resolve
        from ptq_dynamics.figures.style import lines

        data, wanted = sheet.data, list(sheet.data.wanted())
        rows = [(metric, quantizer) for metric, quantizer in wanted if quantizer]
        columns = [metric for metric, quantizer in wanted if not quantizer]
        height = HEIGHTS[min(len(columns), 3) - 1] * len(rows)
        figure, axes = subplots(len(rows), len(columns), height)
        styles = lines(data.labels)
        parts, facts = list[pd.DataFrame](), dict[str, Any]()
        for ax, ((metric, quantizer), other) in zip(axes, product(rows, columns), strict=True):
            name = ", ".join([other, *([metric, quantizer] if len(rows) > 1 else [])])
            table = data.against_metric(other, metric, quantizer)
            table = table[(table.x > 0) & table.y.notna()]
            against = data.panel(other, None, "")
            shown = data.panel(metric, quantizer, against.y)
            sheet.add(shown, table)
            correlation, found = _correlate(table)
            facts |= {name: found} if found else {}
            for (curve, _, _), part in table.groupby(["curve", "segment", SEED], sort=False):
                line = styles[str(curve)]
                look = {"linestyle": line.dash, "linewidth": 0.5, "elinewidth": 0.5}
                error_bars(ax, part, line, curve, **look)
            ax.set_xscale("log")
            plain_log_ticks(ax.xaxis)
            if shown.percent_y:
                ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.2g}")
            ax.set(xlabel=shown.x, ylabel=shown.y)
            ax.set_title(f"{sheet.panels[-1].title}\n{correlation}")
            table.insert(2, "panel", name)
            parts.append(table)
        legend(figure, axes, {})
        _, about = resolve(sheet.settings, sheet.table, sheet.panels, means=False)
        head(figure, [sheet.footer(), *about])
        return Picture(figure, pd.concat(parts), facts)


def _correlate(table: Any) -> tuple[str, dict[str, Any]]:
    """Correlations of the points of a panel, in words and as facts; none of too few points."""
    if len(table) < LEAST:
        return f"n = {len(table)}, too few for a rank correlation", {}
    runs, segments = _points(table, "curve"), _points(table, "segment")
    tried = {
        "all points": pooled(runs),
        "given the loss": partial(runs),
        "within runs": within(segments),
    }
    found = {key: value for key, value in tried.items() if value is not None}
    facts: dict[str, Any] = {key: value._asdict() for key, value in found.items()}
    words = "\n".join(f"ρ {key}: {value}" for key, value in found.items())
    return words, facts | {"points": len(table), "runs": len(runs)}


def _points(table: Any, by: str) -> list[np.ndarray]:
    """Curvature, metric and loss at the points of every run at every seed, each [n, 3]."""
    return [part[["x", "y", LOSS]].to_numpy() for _, part in table.groupby([by, SEED], sort=False)]
