"""Settings of the layouts of figures, as they cross the job border."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptq_dynamics.measure.settings import Series


@dataclass(frozen=True)
class Shown:
    """A quantizer: `name` is the figure's for it, `used` that of the one this scale takes."""

    name: str
    used: str
    method: str
    bits: int


@dataclass(frozen=True)
class ShownRun:
    """A run whose learning rate or training curve is drawn, at one seed; `label` is that of its
    input; a branch leaves its `trunk` at the step `at`."""

    label: str
    name: str
    seed: int
    trunk: str | None
    at: int | None


@dataclass(frozen=True)
class FigureSettings:
    """What a figure shows: its curves, in the order of the legend, each a label and the names of
    trajectories; the series that it reads; and how its layout draws them."""

    curves: tuple[tuple[str, tuple[str, ...]], ...]
    quantizers: tuple[Shown, ...]
    metrics: tuple[str, ...]
    options: Mapping[str, Any]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
    scale: str
