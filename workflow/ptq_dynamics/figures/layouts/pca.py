"""Where the checkpoints of trajectories lie in their first two principal components."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ptq_dynamics.curvature.settings import SCORES
from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.around import head, legend
from ptq_dynamics.figures.footer import footer
from ptq_dynamics.figures.panels import COLUMNS, HEIGHTS, mark_end, save, subplots
from ptq_dynamics.figures.settings import FigureSettings
from ptq_dynamics.figures.style import Line, lines
from ptq_dynamics.measure.measurements import read_csv
from ptq_dynamics.measure.names import SEED, TRAJECTORY

PLANE = ["pc1", "pc2"]
SIGNS = "hollow: start, outlined: end, arrows: direction of time"
EXACT = "places are exact, those of another seed are not in it"
CAVEAT = "random walks in many dimensions look so too (arXiv 1806.08805)"
# Where an arrow may be, as shares of a path's length, and how much of it gives its direction.
PLACES = np.linspace(0.15, 0.85, 15)
REACH = 0.04
ARROW = "-|>,head_length=0.8,head_width=0.35"


def run(context: Context[FigureSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure."""
    manifest = context.input("components")
    scores = read_csv(manifest.file(SCORES), {TRAJECTORY: "string"})
    explained = manifest.facts["explained"]
    figure, (ax,) = subplots(1, 1, HEIGHTS[0] * 1.3)
    curves = dict(context.settings.curves)
    styles = lines(list(curves))
    paths = [
        (label, segment, part)
        for label, names in curves.items()
        for segment, part in _paths(scores, names)
    ]
    parts = []
    for number, (label, segment, part) in enumerate(paths):
        line = styles[label]
        named = label not in {other for other, _, _ in paths[:number]}
        ax.plot(
            part.pc1,
            part.pc2,
            color=line.color,
            linestyle=line.dash,
            marker=line.marker,
            markersize=1.6,
            label=label if named else None,
        )
        others = [other for place, (_, _, other) in enumerate(paths) if place != number]
        away = [_along(other[PLANE].to_numpy(), np.linspace(0, 1, 100)) for other in others]
        _show_direction(ax, part[PLANE].to_numpy(), np.concatenate([np.empty((0, 2)), *away]), line)
        points = {"panel": "a", "curve": label, "segment": segment, "axis": "left"}
        parts.append(pd.DataFrame({**points, "x": part.pc1, "y": part.pc2}))
    for number, axis in enumerate((ax.xaxis, ax.yaxis)):
        axis.set_label_text(
            f"Principal component {number + 1} ({100 * explained[number]:.0f} % of variance)"
        )
    legend(figure, [ax], {})
    head(figure, f"{footer(context)}; {EXACT}; {SIGNS}; {CAVEAT}")
    table = pd.concat(parts).reindex(columns=COLUMNS)
    save(figure, table, context)
    return {"points": len(table)}


def _show_direction(ax: Axes, path: np.ndarray, others: np.ndarray, line: Line) -> None:
    """Mark start and end of a path [n, 2]; above all markers, an arrow in the direction of time,
    where it is farthest from the points [m, 2] of other paths."""
    start: dict[str, Any] = {"s": 14, "marker": line.marker, "zorder": 4}
    ax.scatter(*path[:1].T, facecolors="white", edgecolors=line.color, linewidths=0.8, **start)
    mark_end(ax, path[-1:], line)
    if len(path) < 2:
        return
    away = np.linalg.norm(_along(path, PLACES)[:, None] - others, axis=2)
    best = PLACES[away.min(axis=1, initial=np.inf).argmax()]
    tail, tip = _along(path, np.array([best - REACH, best]))
    look = {"arrowstyle": ARROW, "facecolor": line.color, "edgecolor": "black", "linewidth": 0.5}
    look |= {"mutation_scale": 8, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", xy=tip, xytext=tail, arrowprops=look, zorder=5)


def _along(path: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Points [k, 2] at shares of the length of a path [n, 2]."""
    lengths = np.linalg.norm(np.diff(path, axis=0), axis=1).cumsum()
    way = np.concatenate([[0.0], lengths])
    return np.stack([np.interp(shares * way[-1], way, side) for side in path.T], axis=1)


def _paths(scores: pd.DataFrame, names: Iterable[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """The scores of every trajectory, by seed where there are several."""
    for name in names:
        found = scores[scores.trajectory == name]
        for seed, part in found.groupby(SEED, sort=False):
            yield (name if found.seed.nunique() == 1 else f"{name} seed {seed}"), part
