"""Turn the measurements that a figure selects into the points of its curves."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import cast, get_args

import numpy as np
import pandas as pd

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.labels import (
    FULL_PRECISION,
    QUANTIZED,
    Panel,
    Selection,
    ShownRun,
    call,
    in_groups,
)
from ptq_dynamics.measure import names
from ptq_dynamics.measure.measurements import contributions, errors_of_comparison, join
from ptq_dynamics.train.settings import TRAINING
from ptq_dynamics.trajectories.trajectory import CURVE, Checkpoint, Trajectory

# Columns that describe the origin of a point.
ABOUT = ["metric", "quantizer", "draws", "bits", "trajectory", "checkpoint_id", "task", "seeds"]
OF_RUNS = "of_runs"  # whether an error is the standard deviation of several runs
NEIGHBOURS = 21  # points of a training curve in whose median spikes vanish
POINT = [names.TRAJECTORY, names.SEED, names.CHECKPOINT_ID]  # key of one metric, quantizer and task


class Curves:
    """A figure's measurements as rows (`rows`, `select`) and as points of curves (`along`).
    A value is the mean over calibration draws and seeds. Its error is the standard deviation over
    seeds, or with one seed the standard error over blocks (`errors_of_comparison`) and draws."""

    def __init__(self, settings: Selection, inputs: Mapping[str, Sequence[Manifest]]) -> None:
        self.settings, self.inputs = settings, inputs
        self.table = join(settings.series, inputs)
        # If no checkpoint has tokens, figures show steps.
        known = self.table[names.TOKENS].notna().any()
        self.x, self.x_label = (names.TOKENS, "Training tokens") if known else (names.STEP, "Step")
        if self.table[self.x].isna().all():
            self.table = self.table.assign(**{self.x: 0})
        self.curves = dict(settings.curves)
        self.labels = list(self.curves)
        self.groups = in_groups(self.labels)
        own = {c.name: Panel(c.title, "", c.label) for c in settings.columns}
        rounded = {column.name for column in settings.columns if column.quantized}
        self.quantized = QUANTIZED | {name: own[name] for name in rounded}
        self.full = FULL_PRECISION | {name: own[name] for name in own.keys() - rounded}
        members = [(curve, name) for curve, names_ in settings.curves for name in names_]
        self.members = pd.DataFrame(members, columns=["curve", names.TRAJECTORY])
        self.quantizers = {shown.name: shown for shown in settings.quantizers}
        self.draws: dict[str | None, tuple[str, ...]] = {None: (names.FULL_PRECISION,)}
        self.draws |= {shown.name: shown.draws for shown in settings.quantizers}
        self.called = call(settings.quantizers)
        self.places = {series.trajectory: series.places for series in settings.series}
        # The trunk of each branch, and the step at which the branch begins.
        self.trunks = {run.name: run.trunk for run in settings.runs if run.trunk}
        self.starts = {run.name: run.at or 0 for run in settings.runs if run.trunk}
        # A branch that continues a trunk in this figure begins at the end of its stable phase.
        shown = {name for _, name in members}
        goes_on = [name for name, trunk in self.trunks.items() if trunk in shown]
        held = self.table[(self.table.phase == "stable") & self.table.trajectory.isin(goes_on)]
        ends = held.groupby(names.TRAJECTORY).step.max()
        self.starts |= {str(name): int(step) for name, step in ends.items()}

    def wanted(self, *, quantized_losses: bool = False) -> Iterator[tuple[str, str | None]]:
        """Yield every metric with every quantizer, or with None for full precision."""
        for metric in self.settings.metrics:
            if metric in self.full:
                yield metric, None
            if metric not in self.full or (metric == names.LOSS and quantized_losses):
                for quantizer in self.quantizers:
                    yield metric, quantizer

    def panel(self, metric: str, quantizer: str | None, x: str, title: str = "{}") -> Panel:
        """Return a panel for a metric against `x`; `title` is a template for the metric's words."""
        words = self.quantized[metric] if quantizer else self.full[metric]
        called = words.title.format(q=self.called.get(quantizer or ""))
        return replace(words, title=title.format(called), x=x)

    def run_panel(self, metric: str, quantizer: str | None, title: str = "{}") -> Panel:
        """Return a panel for a metric against tokens, above a strip with the learning rate."""
        panel = self.panel(metric, quantizer, self.x_label, title)
        return replace(panel, strip=True, tokens_x=True, crop=metric == names.LOSS)

    @cache
    def rows(self, metric: str, quantizer: str | None) -> pd.DataFrame:
        """Return a metric of every trajectory, seed, checkpoint and task."""
        used = self.draws[quantizer]
        point = [*POINT, names.TASK]
        table = self.table[(self.table.metric == metric) & self.table.quantizer.isin(used)]
        values = table.groupby(point, sort=False, dropna=False)[names.VALUE]
        draws = values.transform("size")
        spread = (values.transform("std") / draws**0.5).where(draws > 1, 0)
        table = table.assign(value=values.transform("mean")).drop_duplicates(point)
        table = table.assign(quantizer=quantizer or names.FULL_PRECISION, draws=" ".join(used))
        if metric in get_args(names.Paired):
            # The error of the mean over draws is smaller than the error of one draw.
            blocks = defaultdict[tuple[str, int | None, str], list[np.ndarray]](list)
            for series in (one for one in self.settings.series if one.quantizer in used):
                by_id = contributions(cast(names.Paired, metric), series, self.inputs)
                for name, losses in by_id.items():
                    blocks[series.trajectory, series.seed, name].append(losses)
            errors = errors_of_comparison({key: np.mean(v, axis=0) for key, v in blocks.items()})
            seeds = [None if seed is pd.NA else seed for seed in table.seed]
            keys = zip(table.trajectory, seeds, table.checkpoint_id, strict=True)
            table = table.assign(stderr=[errors[key] for key in keys])
        return table.assign(stderr=np.hypot(table.stderr, spread[table.index]))

    def select(self, metric: str, quantizer: str | None) -> pd.DataFrame:
        """Return a metric averaged over seeds, from measurements or from training curves."""
        if metric not in TRAINING:
            return over_seeds(self.rows(metric, quantizer), names.CHECKPOINT_ID, names.TASK)
        parts = []
        for run in self.settings.runs:
            curve = pd.read_csv(self.inputs[run.label][0].file(CURVE))
            value = curve[metric].rolling(NEIGHBOURS, 1, center=True).median()
            parts.append(curve.assign(trajectory=run.name, value=value, seed=run.seed))
        table = pd.concat(parts, ignore_index=True).assign(stderr=np.nan, metric=metric)
        return over_seeds(table, names.STEP)

    def points(self, metric: str, quantizer: str | None) -> pd.DataFrame:
        """Return a metric against tokens; task metrics are means over tasks."""
        table = self.select(metric, quantizer)
        if metric in names.TASK_METRICS:
            table = table[table.task == names.MEAN]
        return self.along(table, self.x)

    def beside_loss(self, metric: str, quantizer: str) -> pd.DataFrame:
        """Return a metric averaged over seeds beside the loss in full precision."""
        key = [names.TRAJECTORY, names.CHECKPOINT_ID]
        before = self.select(names.LOSS, None).set_index(key)[names.VALUE].rename(names.LOSS)
        return self.select(metric, quantizer).join(before, on=key)

    def against_loss(self, metric: str, quantizer: str) -> pd.DataFrame:
        """Return a metric of quantized weights against the loss in full precision."""
        return self.along(self.beside_loss(metric, quantizer), names.LOSS)

    def with_loss(self, metric: str, quantizer: str | None) -> pd.DataFrame:
        """Return a metric of every curve, seed and checkpoint beside the full-precision loss."""
        before = self.rows(names.LOSS, None).set_index(POINT)[names.VALUE].rename(names.LOSS)
        table = self.rows(metric, quantizer).sort_values(names.STEP, kind="stable")
        return self.members.merge(table.join(before, on=POINT), on=names.TRAJECTORY)

    def checkpoints(self, run: ShownRun) -> Sequence[Checkpoint]:
        """Return the checkpoints of a run: the planned ones of public models and averages, and all
        that training wrote of others."""
        return self.places.get(run.name) or Trajectory(self.inputs[run.label]).checkpoints

    def along(self, table: pd.DataFrame, x: str) -> pd.DataFrame:
        """Return points against column `x`, curve by curve in the order of steps. A run ends where
        a branch in its curve begins."""
        table = table[table[x].notna()]
        # Rows up to the start of a branch belong to its trunk, too; `origin` is what was measured.
        step, start = table.step.astype(float), table.trajectory.map(self.starts).astype(float)
        table = table.assign(origin=table.trajectory)
        early = table[step <= start]
        early = early.assign(trajectory=early.trajectory.map(self.trunks))
        table = pd.concat([table[~(step < start)], early])
        point = [name for name in (names.CHECKPOINT_ID, names.STEP) if name in table]
        table = table.drop_duplicates([names.TRAJECTORY, *point])
        # Sorting by several columns is stable; rows without a step come last.
        table = table.sort_values([names.STEP, names.TOKENS])
        parts = []
        for curve, members in self.curves.items():
            for name in members:
                part = table[table.trajectory == name]
                ends = [self.starts[other] for other in members if self.trunks.get(other) == name]
                part = part[part.step <= max(ends)] if ends else part
                parts.append(placed(part, part[x], curve=curve, segment=name))
        return pd.concat(parts, ignore_index=True)

    def over_branches(self, points: pd.DataFrame) -> pd.DataFrame:
        """Return the means over those branches of a trunk in a curve that begin and end alike."""
        ids = points.groupby(["curve", "segment"]).checkpoint_id
        span = ids.transform("first") + ids.transform("last")
        key = span + [self.trunks.get(name) or name for name in points.segment]
        points = points.assign(key=key, own=points.checkpoint_id)
        return over_runs(points, "curve", "key", "own").drop(columns=["key", "own"])

    @staticmethod
    def last_of(points: pd.DataFrame) -> pd.DataFrame:
        """Return the last point of every trajectory in a curve."""
        return points.groupby(["curve", "segment"], sort=False).tail(1)


def over_seeds(table: pd.DataFrame, *point: str) -> pd.DataFrame:
    """Average a table over seeds (see `Curves`)."""
    key, seeds = [names.TRAJECTORY, *point], table[names.SEED].astype("string").fillna("")
    own = seeds.groupby(table.trajectory)
    table = table.assign(seeds=own.transform(lambda seeds: " ".join(seeds.unique())))
    values = table.groupby(key, sort=False, dropna=False)[names.VALUE]
    # With one seed, the standard deviation is NaN.
    spread = values.transform("std").fillna(table.stderr)
    return table.assign(value=values.transform("mean"), stderr=spread).drop_duplicates(key)


def over_runs(points: pd.DataFrame, *key: str, spread: bool = False) -> pd.DataFrame:
    """Return the mean of the points of each key, with all their trajectories, checkpoints and
    seeds. The error is the mean of theirs, or the `spread`: the standard deviation of several."""
    runs = points.assign(error=points.high - points.y).groupby([*key], sort=False, dropna=False)
    means = {
        name: runs[name].transform("mean") for name in ("x", "y", names.LOSS) if name in points
    }
    error = runs.error.transform("mean")
    if spread:
        means[OF_RUNS] = runs.y.transform("count") > 1
        error = runs.y.transform("std").fillna(error)
    for name in ("trajectory", "checkpoint_id", "seeds"):
        means[name] = runs[name].transform(lambda texts: " ".join(dict.fromkeys(map(str, texts))))
    points = points.assign(**means, low=means["y"] - error, high=means["y"] + error)
    return points.drop_duplicates([*key])


def placed(table: pd.DataFrame, x: object, curve: object, **others: object) -> pd.DataFrame:
    """Return points of a curve at `x`, with one error up and down, the columns of `ABOUT`, and
    `others`. Segments are trajectories by default."""
    own = {name: table[name] for name in ABOUT if name in table}
    own |= {"trajectory": table.get("origin", table.trajectory), "segment": table.trajectory}
    own |= {"low": table.value - table.stderr, "high": table.value + table.stderr}
    own |= {"y": table.value, "seeds": table.get("seeds", table.seed)}
    return pd.DataFrame({**own, "curve": curve, "axis": "left", "x": x, **others})
