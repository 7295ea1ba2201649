"""Measurements as a table, for notebooks and scripts."""

import os
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import load, read_yaml, require
from ptq_dynamics.engine import checkout, manifest
from ptq_dynamics.figures.columns import columns
from ptq_dynamics.measure.names import Metric
from ptq_dynamics.measure.series import Query
from ptq_dynamics.plan import Plan

if TYPE_CHECKING:
    import pandas as pd


def measurements(
    figure: str | None = None,
    *,
    trajectories: Sequence[str] = (),
    metrics: Sequence[str] = (),
    quantizers: Sequence[str] = (),
    seeds: bool | int = False,
    scale: str | None = None,
    project: Path = Path(),
) -> "pd.DataFrame":
    """Return the rows of `measurements.csv` of a figure, or of trajectories × metrics × quantizers
    and full precision. Raises `Problem` if a result is not built."""
    from ptq_dynamics.measure.measurements import join

    if figure is None and not (trajectories and metrics):
        raise Problem("name a figure, or trajectories and metrics")
    with chdir(project):
        choice = read_yaml(Path("config/config.yaml")) | ({"scale": scale} if scale else {})
        root = Path(os.path.relpath(checkout.ROOT))
        plan = Plan(load({**choice, "figures": "all"}, Path("config")), root)
        query = Query(tuple(trajectories), tuple(metrics), tuple(quantizers), seeds)
        if figure is not None:
            require("figure", "figure", [figure], plan.site.config.figures)
            query = plan.site.config.figures[figure].query
        require("trajectories", "trajectory", query.trajectories, plan.site.planned)
        require("quantizers", "quantizer", query.quantizers, plan.site.config.quantizers)
        require("metrics", "metric", query.metrics, [*get_args(Metric), *columns()])
        series, inputs = plan.measurements.series_of([query])
        results = {name: [manifest.read(Path(p)) for p in paths] for name, paths in inputs.items()}
        table = join(series, results)
    return table[table.metric.isin(query.metrics)].reset_index(drop=True)
