"""Metrics along the training stages of one model, each in its part of the horizontal axis."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.labels import QUANTIZED, Panel
from ptq_dynamics.figures.layout import Layout, Some
from ptq_dynamics.measure import names

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ptq_dynamics.figures.curves import Curves
    from ptq_dynamics.figures.panels import Picture, Sheet
    from ptq_dynamics.figures.style import Styles

# A stage is one unit wide for each `POINTS` points, at least 1 and at most `WIDEST`.
POINTS, WIDEST = 4, 3.0
ALONG = "Checkpoints, stage by stage"


class StagesOptions(Strict):
    """`ends`: only last checkpoints; `tasks`: panels of the mean over tasks, or of each task."""

    ends: bool = False
    tasks: Literal["mean", "each"] = "mean"


class Stages(Layout):
    """A panel for every metric, quantizer and task; curves are the stages.
    A light line shows the accuracy of chance, or the degradation of a model that guesses."""

    layout: Literal["stages"]
    metrics: Some[Literal[names.Paired, "accuracy", "accuracy_degradation"]]
    options: StagesOptions = StagesOptions()

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        from ptq_dynamics.measure.measurements import chances, tasks

        data = sheet.data
        chance, counted = chances(data.inputs), tasks(sheet.settings.series[0], data.inputs)
        for metric, quantizer in data.wanted():
            table, panels = data.select(metric, quantizer), {"": "{}"}
            if metric in names.TASK_METRICS:
                panels = {names.MEAN: "{}"}
                if self.options.tasks == "each":
                    panels = {task: task for task in table.task.unique() if task != names.MEAN}
                    panels[names.MEAN] = "mean over tasks"
            for task, title in panels.items():
                points = self._points(data, table[table.task == task] if task else table)
                parts = [points]
                if task in chance:
                    parts.append(_by_chance(data, points, metric, chance[task]))
                title += "" if counted.get(task, True) else ", at chance"
                panel = replace(data.panel(metric, quantizer, ALONG, title), form="bars")
                sheet.add(panel, *parts)
        return sheet.publish(columns=min(len(sheet.panels), 3), draw=_draw_panel)

    def _points(self, data: "Curves", table: "pd.DataFrame") -> "pd.DataFrame":
        """Return the points of every stage, from left to right."""
        import pandas as pd

        from ptq_dynamics.figures.curves import placed

        table = table.sort_values([names.STEP, names.TOKENS])
        parts, start = [], 0.0
        for label, members in data.curves.items():
            runs = [table[table.trajectory == name] for name in members]
            part = pd.concat([run.tail(1) for run in runs] if self.options.ends else runs)
            x = start + _width(part) * (np.arange(len(part)) + 0.5) / len(part)
            start += _width(part)
            parts.append(placed(part, x, label))
        return pd.concat(parts)


def _by_chance(
    data: "Curves", points: "pd.DataFrame", metric: str, chance: float
) -> "pd.DataFrame":
    """Return the level of a model that guesses: its accuracy, or its degradation."""
    import pandas as pd

    if metric != names.ACCURACY:
        key = [names.TRAJECTORY, names.CHECKPOINT_ID, names.TASK]
        before = data.select(names.ACCURACY, None).set_index(key)[names.VALUE].astype(float)
        places = pd.MultiIndex.from_frame(points[["segment", names.CHECKPOINT_ID, names.TASK]])
        mean = before.reindex(places).mean()
        # The degradation is undefined for a mean accuracy of 1.
        chance = (mean - chance) / (1 - mean) if mean < 1 else np.nan
    return points.assign(axis="level", metric="chance", y=chance, low=np.nan, high=np.nan)


def _draw_panel(ax: "Axes", panel: Panel, table: "pd.DataFrame", styles: "Styles") -> None:
    from ptq_dynamics.figures.axes import error_bars, write_labels

    points, level = table[table.axis == "left"], table[table.axis == "level"]
    ax.plot(points.x, points.y, color="0.6", linewidth=0.6, zorder=1)
    chance = "chance" if len(level) else None
    ax.plot(level.x, level.y, zorder=1, color="0.75", linewidth=0.8, label=chance)
    end = 0.0
    for stage, part in points.groupby("curve", sort=False):
        error_bars(ax, part, styles[str(stage)], "_")  # the axis has names of stages
        end += _width(part)
        ax.axvline(end, color="0.85", linewidth=0.4, zorder=0)
    ax.grid(False, axis="x")
    ax.set_xlim(0, end)
    if panel.y == QUANTIZED[names.DEGRADATION].y:
        ax.axhline(0, color="0.3", linewidth=0.5, zorder=1)
        # The level of chance may be far from the points, so only points set the vertical axis.
        low, high = points.low.fillna(points.y).min(), points.high.fillna(points.y).max()
        room = 0.05 * ((max(0, high) - min(0, low)) or 1)
        ax.set_ylim(min(0, low) - room, max(0, high) + room)
    stages = points.groupby("curve", sort=False).x.mean()
    write_labels(ax, panel)
    ax.set_xlabel("")
    ax.set_xticks(stages, stages.index, rotation=90)
    ax.tick_params(axis="x", length=0, labelbottom=panel.is_lowest)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}".replace("-", "−"))


def _width(part: "pd.DataFrame") -> float:
    return min(WIDEST, max(1.0, len(part) / POINTS))
