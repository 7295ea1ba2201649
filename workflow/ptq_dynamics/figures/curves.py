"""From measurements to the points of curves."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from ptq_dynamics.figures import words
from ptq_dynamics.figures.panels import COLUMNS, Panel
from ptq_dynamics.figures.settings import FigureSettings
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.measure.joining import join
from ptq_dynamics.measure.settings import FULL_PRECISION
from ptq_dynamics.trajectories.trajectory import Trajectory

# Metrics that the runs' training curves hold, not the measurements.
TRAINING = ("gradient_norm", "weight_norm")


class Curves:
    """The measurements that a figure's query names, curve by curve."""

    def __init__(self, context: Context[FigureSettings]) -> None:
        self._settings = settings = context.settings
        self._table = join(settings.series, context.inputs)
        self._runs = {run.name: context.input(run.label) for run in settings.runs}
        self._branches = {run.name: (run.trunk, run.at or 0) for run in settings.runs}
        self._curves = dict(settings.curves)
        self.quantizers = {shown.name: shown for shown in settings.quantizers}
        self.labels = list(self._curves)
        self.called = words.call(settings.quantizers)

    def wanted(self, *, quantized_losses: bool = False) -> Iterator[tuple[str, str | None]]:
        """Every metric of the query with every quantizer, or None for full precision; the loss in
        full precision alone unless it is also wanted of quantized weights."""
        for metric in self._settings.metrics:
            if metric in words.FULL_PRECISION:
                yield metric, None
            if metric not in words.FULL_PRECISION or (metric == "loss" and quantized_losses):
                for quantizer in self.quantizers:
                    yield metric, quantizer

    def panel(
        self, name: str, metric: str, quantizer: str | None, x: str, group: str = ""
    ) -> Panel:
        """A panel for a metric against `x`."""
        called = None if quantizer is None else self.called[quantizer]
        return words.panel(name, metric, called, x, group)

    def over_tokens(self, name: str, metric: str, quantizer: str | None) -> Panel:
        """A panel for a metric against training tokens, with the learning rate on the right."""
        panel = self.panel(name, metric, quantizer, "Training tokens")
        return replace(panel, right="Learning rate", tokens_x=True, crop=metric == "loss")

    def points(
        self, panel: str, metric: str, quantizer: str | None, *, lineage: bool = False
    ) -> pd.DataFrame:
        """A metric against tokens, with one standard error up and down where it has one: of every
        measured checkpoint, or as the training curves have it."""
        if metric in TRAINING:
            return self._training(panel, metric, lineage)
        if metric != "eigenvalues":
            return self._points(panel, self._select(metric, quantizer), "tokens", lineage)
        parts = []
        for name in sorted({m for m in self._table.metric if m.startswith("eigenvalue_")}):
            table = self._select(name, quantizer).assign(stderr=math.nan)
            points = self._points(panel, table, "tokens", lineage)
            parts.append(points.assign(segment=points.segment + " " + name))
        return pd.concat(parts)

    def against_share(self, panel: str, metric: str, quantizer: str | None) -> pd.DataFrame:
        """A metric along a line, against the share of the way."""
        table = self._select(metric, quantizer)
        return self._points(
            panel, table.assign(share=table.step / table.step.max()), "share", False
        )

    def ends(self, panel: str, metric: str, quantizer: str | None) -> pd.DataFrame:
        """A metric of every trajectory's last checkpoint against its tokens, a line a curve."""
        points = self.points(panel, metric, quantizer)
        last = points.groupby(["curve", "segment"], sort=False).tail(1)
        return last.assign(segment=last.curve).sort_values(["curve", "x"], kind="stable")

    def against_loss(self, panel: str, quantizer: str, *, lineage: bool = False) -> pd.DataFrame:
        """Loss after quantization against loss before it, in the second half of the longest run's
        tokens (the first would squeeze the rest); the band is the paired error of their
        difference."""
        key = ["trajectory", "step"]
        before = self._select("loss", None).set_index(key)["value"].rename("before")
        paired = self._select("loss_increase", quantizer).set_index(key)["stderr"].rename("paired")
        table = self._select("loss", quantizer).join(before, on=key).join(paired, on=key)
        table = table[table.tokens >= table.tokens.max() / 2]
        return self._points(panel, table.assign(stderr=table["paired"]), "before", lineage)

    def learning_rates(self, panel: str, *, lineage: bool = False) -> pd.DataFrame:
        """The learning rate of every run, on the right axis."""
        rows = []
        for curve, name, last in self._segments(lineage):
            if name not in self._runs:
                continue
            for checkpoint in Trajectory([self._runs[name]]).checkpoints:
                if last is None or (checkpoint.step or 0) <= last:
                    point = (panel, curve, name, "right", checkpoint.tokens, checkpoint.lr)
                    rows.append((*point, math.nan, math.nan))
        return pd.DataFrame(rows, columns=COLUMNS)

    def against_metric(
        self, panel: str, other: str, metric: str, quantizer: str | None
    ) -> pd.DataFrame:
        """A metric against another one in full precision, a point a checkpoint: weights that lie on
        several trajectories once, with the first."""
        key = ["trajectory", "step"]
        against = self._select(other, None).set_index(key)[["value", "checkpoint"]]
        against = against.rename(columns={"value": "other", "checkpoint": "weights"})
        table = self._select(metric, quantizer).join(against, on=key, how="inner")
        parts = []
        for curve, name, _ in self._segments(False):
            part = table[table.trajectory == name].sort_values("step")
            low, high = part.value - part.stderr, part.value + part.stderr
            points = {"curve": curve, "segment": name, "panel": panel, "x": part.other}
            points |= {"y": part.value, "low": low, "high": high, "weights": part.weights}
            parts.append(pd.DataFrame(points))
        return pd.concat(parts).drop_duplicates("weights").drop(columns="weights")

    def _training(self, panel: str, column: str, lineage: bool) -> pd.DataFrame:
        """A column of the training curves of the runs against tokens."""
        parts = []
        for curve, name, last in self._segments(lineage):
            if name not in self._runs:
                continue
            rows = pd.read_csv(self._runs[name].file("curve.csv"))
            rows = rows if last is None else rows[rows.step <= last]
            points = pd.DataFrame({"x": rows.tokens, "y": rows[column]})
            place = {"panel": panel, "curve": curve, "segment": name, "axis": "left"}
            parts.append(points.assign(**place, low=math.nan, high=math.nan))
        return pd.concat(parts, ignore_index=True)[COLUMNS]

    def _segments(self, lineage: bool) -> Iterator[tuple[str, str, int | None]]:
        """Curve, trajectory and, with `lineage`, the step at which another trajectory of the curve
        takes over from it."""
        for curve, names in self._curves.items():
            ends: dict[str, int] = {}
            for trunk, at in (self._branches.get(name, (None, 0)) for name in names):
                if lineage and trunk:
                    ends[trunk] = max(at, ends.get(trunk, 0))
            for name in names:
                yield curve, name, ends.get(name)

    def _select(self, metric: str, quantizer: str | None) -> pd.DataFrame:
        table = self._table[self._table.metric == metric]
        if quantizer is None:
            return table[table.quantizer == FULL_PRECISION]
        return table[table.quantizer == self.quantizers[quantizer].used]

    def _points(self, panel: str, table: pd.DataFrame, x: str, lineage: bool) -> pd.DataFrame:
        parts = []
        for curve, name, last in self._segments(lineage):
            part = table[table.trajectory == name].sort_values("step")
            if last is not None:
                # What takes over begins with this trajectory's weights, measured there at least.
                members = table.trajectory.isin(self._curves[curve])
                join = table[members & (table.step == last)].head(1)
                part = pd.concat([part[part.step < last], join])
            points = {
                "panel": panel,
                "curve": curve,
                "segment": name,
                "axis": "left",
                "x": part[x],
                "y": part.value,
                "low": part.value - part.stderr,
                "high": part.value + part.stderr,
            }
            parts.append(pd.DataFrame(points))
        return pd.concat(parts, ignore_index=True)[COLUMNS]
