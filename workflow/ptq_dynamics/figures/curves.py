"""From measurements to the points of curves."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from ptq_dynamics import measurements, trajectory
from ptq_dynamics.figures.panels import COLUMNS
from ptq_dynamics.stage import Context


class Curves:
    """The measurements that a figure's query names, curve by curve."""

    def __init__(self, context: Context) -> None:
        self._config = context.config
        paths = [manifest.file("measurements.csv") for manifest in context.inputs["measurements"]]
        self._table = measurements.read(paths)
        self._runs = {manifest.folder.name: manifest for manifest in context.inputs["runs"]}
        self._curves: dict[str, list[str]] = dict(self._config["curves"])
        self.quantizers: dict[str, Any] = dict(self._config["quantizers"])
        self.labels = list(self._curves)

    def against_tokens(
        self, panel: str, metric: str, quantizer: str | None, *, lineage: bool = False
    ) -> pd.DataFrame:
        """A metric of every checkpoint against its tokens, with one standard error up and down."""
        return self._points(panel, self._select(metric, quantizer), "tokens", lineage)

    def against_loss(self, panel: str, quantizer: str, *, lineage: bool = False) -> pd.DataFrame:
        """Loss after quantization against loss before it; the band is the paired error of their
        difference."""
        key = ["trajectory", "step"]
        before = self._select("loss", None).set_index(key)["value"].rename("before")
        paired = self._select("loss_increase", quantizer).set_index(key)["stderr"].rename("paired")
        table = self._select("loss", quantizer).join(before, on=key).join(paired, on=key)
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
                part = part[part.step <= last]
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
    parameters = max(manifest.facts["parameters"] for manifest in context.inputs["runs"])
    return (
        f"{context.config['scale']}: {_short(parameters)} parameters, "
        f"{_short(context.config['tokens'])} tokens"
    )


def _short(number: float) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size / 10:
            return f"{number / size:.3g}{unit}" if number >= size else f"{number / size:.2f}{unit}"
    return f"{number:.0f}"
