"""Metrics of quantized weights against curvature, with their rank correlation."""

from dataclasses import replace
from itertools import product
from typing import Any, Literal, Self

from pydantic import model_validator

from ptq_dynamics.figures.correlation import LEAST, partial, pooled, within
from ptq_dynamics.figures.layout import Measured, Some
from ptq_dynamics.measure.names import LOSS, PROBES, SEED, STEP, VALUE, ErrorOrCurvature


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
            panel = data.panel(metric, quantizer, data.panel(other, None, "").y)
            sheet.add(replace(panel, title=f"{panel.title}\n{correlation}", log_x=True), table)
            name = ", ".join([other, *([metric, quantizer] if len(rows) > 1 else [])])
            names[sheet.panels[-1].name] = name
            facts |= {name: found} if found else {}
        picture = sheet.publish(columns=len(columns), draw=_draw_panel)
        table = picture.table.assign(panel=picture.table.panel.map(names))
        order = ["curve", "segment", "panel"]
        table = table[[*order, *(column for column in table if column not in order)]]
        return picture._replace(table=table, facts=facts)


def _against(data: Any, other: str, metric: str, quantizer: str) -> Any:
    """A metric against another one in full precision, a point a checkpoint and seed, with its loss
    in full precision: weights that lie on several trajectories once, with the first."""
    import pandas as pd

    from ptq_dynamics.figures.curves import POINT, band

    before = data.rows(LOSS, None).set_index(POINT)[VALUE].rename("before")
    against = data.rows(other, None).set_index(POINT)[[VALUE, "checkpoint"]]
    against = against.rename(columns={VALUE: "other", "checkpoint": "weights"})
    table = data.rows(metric, quantizer).join(against, on=POINT, how="inner")
    table = table.join(before, on=POINT)
    parts = []
    for curve, name in (
        (curve, name) for curve, members in data.curves.items() for name in members
    ):
        part = table[table.trajectory == name].sort_values(STEP, kind="stable")
        points = {"curve": curve, "segment": name, "x": part.other, **band(part)}
        points |= {"weights": part.weights, SEED: part.seed, LOSS: part.before}
        parts.append(pd.DataFrame(points))
    whole = pd.concat(parts).drop_duplicates("weights").drop(columns="weights")
    return whole[(whole.x > 0) & whole.y.notna()]


def _draw_panel(ax: Any, panel: Any, table: Any, styles: Any) -> None:
    from ptq_dynamics.figures.panels import error_bars, plain_log_ticks

    for (curve, _, _), part in table.groupby(["curve", "segment", SEED], sort=False):
        look = {"linestyle": styles[curve].dash, "linewidth": 0.5, "elinewidth": 0.5}
        error_bars(ax, part, styles[curve], curve, **look)
    ax.set_xscale("log")
    plain_log_ticks(ax.xaxis)
    if panel.percent_y:
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.2g}")
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
    words, facts = list[str](), dict[str, Any]()
    tried = pooled(runs), partial(runs), within(segments)
    for key, found in zip(("all points", "given the loss", "within runs"), tried, strict=True):
        if found is not None:
            words.append(f"ρ {key}: {found}")
            facts[key] = found._asdict()
    return "\n".join(words), facts | {"points": len(table), "runs": len(runs)}
