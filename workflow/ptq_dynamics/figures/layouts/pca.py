"""Where the checkpoints of trajectories lie in their first two principal components."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ptq_dynamics.figures.footer import footer
from ptq_dynamics.figures.panels import COLUMNS, HEIGHTS, head, legend, save, subplots
from ptq_dynamics.figures.settings import FigureSettings
from ptq_dynamics.figures.style import Line, lines
from ptq_dynamics.geometry.settings import SCORES
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.measure.measurements import read_csv


def run(context: Context[FigureSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure."""
    manifest = context.input("components")
    scores = read_csv(manifest.file(SCORES), {"trajectory": "string"})
    explained = manifest.facts["explained"]
    figure, (ax,) = subplots(1, 1, HEIGHTS[0] * 1.3)
    parts = []
    curves = dict(context.settings.curves)
    styles = lines(list(curves))
    for label, names in curves.items():
        line = styles[label]
        for number, (segment, part) in enumerate(_paths(scores, names)):
            ax.plot(
                part.pc1,
                part.pc2,
                color=line.color,
                linestyle=line.dash,
                marker=line.marker,
                label=label if number == 0 else None,
            )
            _point_onwards(ax, part, line)
            points = {"panel": "a", "curve": label, "segment": segment, "axis": "left"}
            parts.append(pd.DataFrame({**points, "x": part.pc1, "y": part.pc2}))
    for number, axis in enumerate((ax.xaxis, ax.yaxis)):
        axis.set_label_text(
            f"Principal component {number + 1} ({100 * explained[number]:.0f} % of variance)"
        )
    legend(figure, [ax], {})
    head(figure, footer(context))
    table = pd.concat(parts).reindex(columns=COLUMNS)
    save(figure, table, context.out, context.name)
    return {"points": len(table)}


def _point_onwards(ax: Axes, part: pd.DataFrame, line: Line) -> None:
    """An arrow at the end, in the direction of time."""
    if len(part) > 1:
        (start, end) = part[["pc1", "pc2"]].to_numpy()[-2:]
        arrow = {"arrowstyle": "-|>", "color": line.color, "lw": 0.8, "mutation_scale": 8}
        ax.annotate("", xy=end, xytext=start, arrowprops=arrow)


def _paths(scores: pd.DataFrame, names: Iterable[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """The scores of every trajectory, by seed where there are several."""
    for name in names:
        found = scores[scores.trajectory == name]
        for seed, part in found.groupby("seed", sort=False):
            yield (name if found.seed.nunique() == 1 else f"{name} seed {seed}"), part
