"""Metrics along the stages that one model went through, each with a stretch of the horizontal
axis."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures import words
from ptq_dynamics.figures.around import head, legend
from ptq_dynamics.figures.footer import footer
from ptq_dynamics.figures.panel import Panel
from ptq_dynamics.figures.panels import COLUMNS, HEIGHTS, save, subplots
from ptq_dynamics.figures.readings import Readings
from ptq_dynamics.figures.resolution import resolve
from ptq_dynamics.figures.settings import StagesSettings
from ptq_dynamics.figures.style import SMALLEST, Line, lines
from ptq_dynamics.measure.joining import chances, tasks
from ptq_dynamics.measure.names import (
    ACCURACY,
    DEGRADATION,
    MEAN,
    STEP,
    TASK,
    TASK_METRICS,
    TOKENS,
    VALUE,
)

# A stage has the width of one, and a longer one that of as many as hold its points so near.
POINTS, WIDEST = 4, 3.0
ALONG = "Checkpoints, stage by stage"
CHANCE = "right by chance"
GUESSED = Line2D([], [], color="0.3", linestyle="--", linewidth=0.8)


def run(context: Context[StagesSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure, a panel for every metric, quantizer and task. Dashed: what chance
    gives; of a degradation, what it is where the quantized model is right by chance alone."""
    settings = context.settings
    read = Readings(settings, context.inputs)
    shown = settings.series[0]
    chance, counted = chances(context.inputs), tasks(shown, context.inputs)
    panels, parts = list[Panel](), list[pd.DataFrame]()
    names = words.letters()
    for metric, quantizer, task in _wanted(settings, read):
        panel = _panel(settings, next(names), metric, quantizer, task)
        if not counted.get(task or "", True):
            panel = replace(panel, title=f"{panel.title}, at chance")
        points = _points(settings, read, panel.name, metric, quantizer, task)
        parts.append(points)
        if task in chance:
            parts.append(_by_chance(read, points, metric, chance[task]))
        panels.append(panel)
    table = pd.concat(parts)
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure, axes = subplots(rows, columns, HEIGHTS[columns - 1] * rows, wide=True)
    styles = lines([label for label, _ in settings.curves])
    for panel, ax in zip(panels, axes, strict=False):
        _draw(ax, panel, table[table.panel == panel.name], styles)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    drawn = table[table.axis == "left"]
    resolved, about = resolve(settings, drawn, panels)
    legend(figure, axes, {CHANCE: GUESSED} if (table.axis == "level").any() else {})
    head(figure, "; ".join([footer(context), *about]))
    save(figure, table, context)
    return {"points": len(drawn), "resolves": resolved}


def _wanted(
    settings: StagesSettings, read: Readings
) -> Iterator[tuple[str, str | None, str | None]]:
    """Metric, quantizer and task of every panel."""
    quantizers = [shown.name for shown in settings.quantizers]
    for metric in settings.metrics:
        under: Sequence[str | None] = [None] if metric in words.FULL_PRECISION else quantizers
        for quantizer in under:
            if metric not in TASK_METRICS:
                yield metric, quantizer, None
                continue
            found = dict.fromkeys(read.rows(metric, quantizer)[TASK])
            each = [str(task) for task in found if task != MEAN]
            for task in [*(each if settings.tasks == "each" else []), MEAN]:
                yield metric, quantizer, task


def _panel(
    settings: StagesSettings, name: str, metric: str, quantizer: str | None, task: str | None
) -> Panel:
    called = None if quantizer is None else words.call(settings.quantizers)[quantizer]
    panel = words.panel(name, metric, called, ALONG)
    if settings.tasks == "mean" or task is None:
        return panel
    said = "mean over tasks" if task == MEAN else task
    return Panel(name, f"({name}) {said}", ALONG, panel.y, percent_y=panel.percent_y)


def _points(
    settings: StagesSettings,
    read: Readings,
    panel: str,
    metric: str,
    quantizer: str | None,
    task: str | None,
) -> pd.DataFrame:
    """The points of every stage in their order, one after the other from left to right."""
    table = read.select(metric, quantizer)
    if task is not None:
        table = table[table[TASK] == task]
    parts, start = [], 0.0
    for label, members in settings.curves:
        found = [table[table.trajectory == name].sort_values([STEP, TOKENS]) for name in members]
        part = pd.concat([each.tail(1) for each in found] if settings.ends else found)
        width = _width(part)
        x = start + width * (np.arange(len(part)) + 0.5) / len(part)
        start += width
        low, high = part.value - part.stderr, part.value + part.stderr
        place = {"panel": panel, "curve": label, "segment": part.trajectory, "axis": "left"}
        columns = {**place, "x": x, "y": part[VALUE], "low": low, "high": high}
        parts.append(pd.DataFrame({**columns, "checkpoint": part.checkpoint_id, "task": task}))
    return pd.concat(parts)[[*COLUMNS, "checkpoint", "task"]]


def _by_chance(read: Readings, points: pd.DataFrame, metric: str, chance: float) -> pd.DataFrame:
    """What a model that guesses has, at every point."""
    level = points.assign(axis="level", low=np.nan, high=np.nan)
    if metric == ACCURACY:
        return level.assign(y=chance)
    assert metric == DEGRADATION
    full = read.select(ACCURACY, None)
    key = ["trajectory", "checkpoint_id", TASK]
    before = full.set_index(key)[VALUE]
    places = pd.MultiIndex.from_frame(points[["segment", "checkpoint", "task"]], names=key)
    accuracy = before.reindex(places).to_numpy(dtype=float)
    # Without anything wrong in full precision there is no degradation.
    wrong = np.where(accuracy < 1, 1 - accuracy, np.nan)
    return level.assign(y=(accuracy - chance) / wrong)


def _draw(ax: Axes, panel: Panel, table: pd.DataFrame, styles: Mapping[str, Line]) -> None:
    points, level = table[table.axis == "left"], table[table.axis == "level"]
    if panel.y == words.QUANTIZED[DEGRADATION].label:
        ax.axhline(0, color="0.3", linewidth=0.5, zorder=1)
    ax.plot(points.x, points.y, color="0.6", linewidth=0.6, zorder=1)
    ax.plot(level.x, level.y, color="0.3", linestyle="--", linewidth=0.8, zorder=1)
    end = 0.0
    for stage, part in points.groupby("curve", sort=False):
        line = styles[str(stage)]
        ax.errorbar(
            part.x,
            part.y,
            yerr=[part.y - part.low, part.high - part.y],
            linestyle="none",
            elinewidth=0.6,
            color=line.color,
            marker=line.marker,
            markersize=line.area**0.5,
            label=stage,
        )
        end += _width(part)
        ax.axvline(end, color="0.85", linewidth=0.4, zorder=0)
    ax.grid(False, axis="x")
    ax.set_xlim(0, end)
    if panel.y == words.QUANTIZED[DEGRADATION].label:
        _limit(ax, points, level)
    ax.set_xticks([])
    ax.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    if panel.percent_y:
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}".replace("-", "−"))


def _limit(ax: Axes, points: pd.DataFrame, level: pd.DataFrame) -> None:
    """The vertical axis is that of the points: what chance gives may lie far from them, and is then
    told in words."""
    low = min(0.0, points.low.fillna(points.y).min())
    high = max(0.0, points.high.fillna(points.y).max())
    # Where nothing is lost, all points are at zero.
    height = (high - low) or 1.0
    room = 0.05 * height
    ax.set_ylim(low - room, high + room)
    chance = level.y[level.y.notna()]
    if len(chance) and (chance > high).any():
        above = chance[chance > high]
        ends = " to ".join(dict.fromkeys(f"{100 * end:.0f}" for end in (above.min(), above.max())))
        # A line of the panel for the words.
        ax.set_ylim(low - room, high + room + 0.16 * height)
        look: dict[str, Any] = {"fontsize": SMALLEST, "color": "0.3", "ha": "right", "va": "top"}
        look["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        ax.text(0.99, 0.98, f"↑ chance: {ends}", transform=ax.transAxes, **look)


def _width(part: pd.DataFrame) -> float:
    """Of a stage on the horizontal axis."""
    return min(WIDEST, max(1.0, len(part) / POINTS))
