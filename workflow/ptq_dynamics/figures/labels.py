"""Names, labels and small types that figures share with other rooms."""

import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.curvature.probes.sharpness import Sharpness
from ptq_dynamics.curvature.probes.spectrum import Spectrum
from ptq_dynamics.measure import names
from ptq_dynamics.measure.metrics import Column
from ptq_dynamics.measure.series import Series

PICTURES = ("pdf", "png")
TABLE = "csv"
ORIGIN = "ptq-dynamics, {scale}: {identity}"  # metadata of pictures
FINDING = "finding"  # a fact of a figure: the notes below its caption
SPANS = "spans"  # a fact of a figure: where its panels lie in the picture, and their limits
UNDER = re.compile(r"(.+) \(.+\)")  # a curve, the first group, under a quantizer
RATE_LABEL = "Learning rate"  # of the strip with learning rates
PEAK_RATE = re.compile(r"LR = ")  # the beginning of a label that is a peak learning rate
QUANTITY = re.compile(r"(\S+) = ")  # in labels, and what the quantities are
QUANTITIES = {"L": "L: averaged checkpoints", "λ": "λ: weight decay", "T": "T: horizon"}
UNITS = {"T": 1e12, "B": 1e9, "M": 1e6, "k": 1e3}

# Trajectory and checkpoint id of averages, and their mean age in tokens before the end.
Ages = tuple[tuple[str, str, float], ...]


def in_group(label: str) -> tuple[str, str]:
    """Split the label "GROUP: NAME" of a curve; the group of other labels is empty."""
    group, _, name = label.rpartition(": ")
    return group, name


def in_groups(labels: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the names of curves by label in every group."""
    groups: dict[str, dict[str, str]] = {}
    for label in labels:
        group, name = in_group(label)
        groups.setdefault(group, {})[label] = name
    return groups


def names_in_groups(labels: Iterable[str]) -> list[str]:
    """Return the distinct names of curves within their groups."""
    return list(dict.fromkeys(in_group(label)[1] for label in labels))


def rounded(number: float) -> str:
    """Format a large number with a unit and three digits: 162M, 99.6B."""
    for unit, size in UNITS.items():
        if number >= size / 10:
            return f"{number / size:.3g}{unit}" if number >= size else f"{number / size:.2f}{unit}"
    return f"{number:.0f}"


def short(number: float) -> str:
    """Format a number as in names of runs: 3e-3, 1.5e-2."""
    digits, _, exponent = f"{number:.3e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


@dataclass(frozen=True)
class Shown:
    """A quantizer in a figure, and its draws of calibration sets."""

    name: str
    draws: tuple[str, ...]
    method: str
    bits: int
    calibrated: bool


@dataclass(frozen=True)
class ShownRun:
    """A run at one seed; a branch leaves its `trunk` at step `at`."""

    label: str
    name: str
    seed: int
    trunk: str | None
    at: int | None
    stands_for: str | None


class Selection(Strict):
    """All that a figure's query selects, with curves in the order of the legend."""

    curves: tuple[tuple[str, tuple[str, ...]], ...]
    quantizers: tuple[Shown, ...]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
    ages: Ages
    scale: str
    notes: tuple[str, ...]
    uncertain_rates: tuple[str, ...]  # public models whose learning rate is uncertain
    # The lowest and the highest peak rate of all controlled runs, if labels have rates.
    rates: Annotated[tuple[float, float] | None, Field(exclude_if=lambda rates: rates is None)] = (
        None
    )
    # The scale's peak rates in multiples of the paper's, if labels have the paper's.
    rate_factor: Annotated[float | None, Field(exclude_if=lambda factor: factor is None)] = None
    absent: Annotated[tuple[str, ...], Field(exclude_if=not_)] = ()  # curves that the scale lacks
    # The words of metrics that `figures.labels` does not have.
    columns: Annotated[tuple[Column, ...], Field(exclude_if=not_)] = ()

    @property
    @abstractmethod
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the figure shows."""

    @property
    @abstractmethod
    def grouped(self) -> bool:
        """Whether curves named "GROUP: NAME" have panels for every group."""


@dataclass(frozen=True)
class Panel:
    """A panel and its axis labels. A unit "(%)" in `y` shows values in per cent."""

    title: str
    x: str
    y: str
    name: str = ""  # its letter
    strip: bool = False  # with the learning rate in a strip below the lowest panel of a column
    tokens_x: bool = False  # format ticks as tokens
    log_x: bool = False
    log_y: bool = False
    # Lines with bands; thin ones without markers; markers with error bars, also in rows; or alone.
    form: Literal["lines", "thin", "bars", "rows", "points"] = "lines"
    is_lowest: bool = True  # of its column
    letters: int = 60  # of a line of the title or of the horizontal axis's label
    crop: bool = False  # it ignores the first part of the horizontal axis, but for ends of runs
    diagonal: bool = False  # draw the line of equal values
    alike: str = ""  # panels with the same value share the vertical scale
    start: float | None = None  # left limit of the horizontal axis of rows
    zoom: float | None = None  # right limit of the horizontal axis


# The panels of metrics, without horizontal axes. Titles have {q} for the quantizer.
FULL_PRECISION = {
    names.LOSS: Panel("Full-precision loss", "", "Loss (nats/token)"),
    **{c.name: Panel(c.title, "", c.label) for c in Sharpness.columns},
    **{c.name: Panel(c.title, "", c.label, form="thin", log_y=True) for c in Spectrum.columns},
    "gradient_norm": Panel("Gradient norm", "", "L2 norm of the gradient", log_y=True),
    "weight_norm": Panel("Weight norm", "", "L2 norm of the weights"),
    names.ACCURACY: Panel("Accuracy", "", "Accuracy (%)"),
}
QUANTIZED = {
    names.LOSS: Panel("{q} loss", "", "Loss (nats/token)"),
    names.QUANTIZATION_ERROR: Panel("{q} error", "", "Loss increase (%)"),
    names.INCREASE: Panel("{q} loss increase", "", "Increase δ (nats/token)"),
    names.WEIGHT_ERROR: Panel("{q} weight error", "", "Mean squared error"),
    names.OUTPUT_ERROR: Panel("{q} output error", "", "Mean squared error"),
    names.DEGRADATION: Panel("{q} accuracy degradation", "", "Degradation (%)"),
}
# Metrics with words in this module; columns have their own, which settings of figures hold.
LABELLED = frozenset({*FULL_PRECISION, *QUANTIZED})
# Labels of methods; others are their names in capitals.
METHODS = {
    **dict.fromkeys(("gptqmodel", "autogptq"), "GPTQ"),
    **{"int8": "LLM.int8", "rtn": "rounding", "gguf-file": "GGUF"},
}


def call(quantizers: Iterable[Shown], *, with_method: bool = False) -> dict[str, str]:
    """Return the shortest distinct labels of quantizers: bits, bits and method, or names. Those
    `with_method` have no bits alone; a recipe has its name."""
    shown = list(quantizers)
    bits = {quantizer.name: f"{quantizer.bits}-bit" for quantizer in shown}
    methods = {q.name: METHODS.get(q.method, q.method.upper()) for q in shown}
    both = {name: f"{bits[name]} {method}" for name, method in methods.items()}
    full = {name: name for name in bits}
    if with_method:
        bits = {q.name: q.name if q.method == "recipe" else both[q.name] for q in shown}
    return next(labels for labels in (bits, both, full) if len({*labels.values()}) == len(full))
