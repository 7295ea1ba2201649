"""From measurements to the points of curves."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from ptq_dynamics.figures.panels import COLUMNS
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.measure import measurements
from ptq_dynamics.trajectories import trajectory


class Curves:
    """The measurements that a figure's query names, curve by curve."""

    def __init__(self, context: Context) -> None:
        self._config = context.settings
        paths = [manifest.file(measurements.FILE) for manifest in context.inputs["measurements"]]
        self._table = measurements.read(paths)
        self._runs = {manifest.folder.name: manifest for manifest in context.inputs["runs"]}
        self._curves: dict[str, list[str]] = dict(self._config["curves"])
        self.quantizers: dict[str, Any] = dict(self._config["quantizers"])
        self.labels = list(self._curves)

    def against_tokens(
        self,
        panel: str,
        metric: str,
        quantizer: str | None,
        *,
        lineage: bool = False,
        band: bool = True,
    ) -> pd.DataFrame:
        """A metric of every checkpoint against its tokens, with one standard error up and down."""
        table = self._select(metric, quantizer)
        points = self._points(
            panel, table if band else table.assign(stderr=math.nan), "tokens", lineage
        )
        return points if band else points.assign(segment=points.segment + " " + metric)

    def against_share(self, panel: str, metric: str, quantizer: str | None) -> pd.DataFrame:
        """A metric along a line, against the share of the way."""
        table = self._select(metric, quantizer)
        return self._points(
            panel, table.assign(share=table.step / table.step.max()), "share", False
        )

    def ends(self, panel: str, metric: str, quantizer: str | None) -> pd.DataFrame:
        """A metric of every trajectory's last checkpoint against its tokens, a line a curve."""
        points = self.against_tokens(panel, metric, quantizer)
        last = points.groupby(["curve", "segment"], sort=False).tail(1)
        return last.assign(segment=last.curve).sort_values(["curve", "x"], kind="stable")

    def training(self, panel: str, column: str, *, lineage: bool = False) -> pd.DataFrame:
        """A column of the training curves of the runs against tokens."""
        parts = []
        for curve, name, last in self._segments(lineage):
            rows = pd.read_csv(self._runs[name].file("curve.csv"))
            rows = rows if last is None else rows[rows.step <= last]
            points = pd.DataFrame({"x": rows.tokens, "y": rows[column]})
            place = {"panel": panel, "curve": curve, "segment": name, "axis": "left"}
            parts.append(points.assign(**place, low=math.nan, high=math.nan))
        return pd.concat(parts, ignore_index=True)[COLUMNS]

    def metrics(self, prefix: str) -> list[str]:
        """Names of the measured metrics that begin so."""
        return sorted({name for name in self._table.metric if name.startswith(prefix)})

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
            for checkpoint in trajectory.checkpoints(self._runs[name]):
                if last is None or checkpoint.step <= last:
                    point = (panel, curve, name, "right", checkpoint.tokens, checkpoint.lr)
                    rows.append((*point, math.nan, math.nan))
        return pd.DataFrame(rows, columns=COLUMNS)

    def _segments(self, lineage: bool) -> Iterator[tuple[str, str, int | None]]:
        """Curve, trajectory and, with `lineage`, the step at which another trajectory of the curve
        takes over from it."""
        for curve, names in self._curves.items():
            branches = [self._config["branches"].get(name, [None, None]) for name in names]
            ends: dict[str, Any] = {trunk: at for trunk, at in branches if lineage}
            for name in names:
                yield curve, name, ends.get(name)

    def _select(self, metric: str, quantizer: str | None) -> pd.DataFrame:
        table = self._table[self._table.metric == metric]
        if quantizer is None:
            return table[table.method == "fp"]
        settings = self.quantizers[quantizer]
        chosen = (table.method == settings["method"]) & (table.bits == settings.get("bits"))
        return table[chosen.fillna(False)]

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


def footer(context: Context) -> str:
    """The scale that a figure was made at: its name, parameters and tokens."""
    runs = context.inputs["runs"]
    sizes = sorted({_short(manifest.facts["parameters"]) for manifest in runs})
    tokens = max(trajectory.checkpoints(manifest)[-1].tokens for manifest in runs)
    return f"{context.settings['scale']}: {' and '.join(sizes)} parameters, {_short(tokens)} tokens"


def _short(number: float) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size / 10:
            return f"{number / size:.3g}{unit}" if number >= size else f"{number / size:.2f}{unit}"
    return f"{number:.0f}"
