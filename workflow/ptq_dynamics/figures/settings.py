"""Names, labels and small types that figures share with those who plan, judge and publish them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ptq_dynamics.measure import names

# The formats that a figure is drawn in, beside the table of what it draws.
PICTURES = ("pdf", "png")
TABLE = "csv"
# What a picture carries in its metadata: the scale, and the identity of what it is made from.
ORIGIN = "ptq-dynamics, {scale}: {identity}"
# A fact of a figure: what its numbers say and how they came about, which stands below its caption.
FINDING = "finding"
SPANS = "spans"  # a fact of a figure: where its panels lie in the picture, and their limits
# A curve that is called so is that of another one, the first group, under a quantizer.
UNDER = re.compile(r"(.+) \(.+\)")
UNITS = {"T": 1e12, "B": 1e9, "M": 1e6, "k": 1e3}

# Of averages: trajectory, checkpoint id, and mean age of what is in it, in tokens before the end.
Ages = tuple[tuple[str, str, float], ...]


def in_group(label: str) -> tuple[str, str]:
    """Group and name of a curve that is named "GROUP: NAME"; no group, and its label, of others."""
    group, _, name = label.rpartition(": ")
    return group, name


def names_in_groups(labels: Iterable[str]) -> list[str]:
    """Of some curves the names within their groups, each once."""
    return list(dict.fromkeys(in_group(label)[1] for label in labels))


def rounded(number: float) -> str:
    """A large number with a unit, to three digits: 162M, 99.6B."""
    for unit, size in UNITS.items():
        if number >= size / 10:
            return f"{number / size:.3g}{unit}" if number >= size else f"{number / size:.2f}{unit}"
    return f"{number:.0f}"


def short(number: float) -> str:
    """A number as runs are named by it: 3e-3, 1.5e-2."""
    digits, _, exponent = f"{number:.3e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


@dataclass(frozen=True)
class Shown:
    """A quantizer by the figure's name; the draws of its calibration set, if it is `calibrated`."""

    name: str
    draws: tuple[str, ...]
    method: str
    bits: int
    calibrated: bool


@dataclass(frozen=True)
class ShownRun:
    """A run at one seed; a branch leaves its `trunk` at the step `at`; a miniature stands in for
    the public model `stands_for`."""

    label: str
    name: str
    seed: int
    trunk: str | None
    at: int | None
    stands_for: str | None


@dataclass(frozen=True)
class Panel:
    """One panel: labels with units, of which "(%)" takes shares as per cent; `tokens_x` formats the
    ticks; `zoom` shows what is left of it; `thin` draws without markers; `faint` draws what is
    neither an end nor a level lightly; with `spikes`, what stands far above its neighbours does not
    set the scale; with `crop`, what comes before the first hundredth of the horizontal axis
    neither; `diagonal` draws the line of equal values; panels that are `alike` have one vertical
    scale; `widths` in points are those of curves that may lie on each other; `name` is its
    letter."""

    title: str
    x: str
    y: str
    name: str = ""
    right: str | None = None
    tokens_x: bool = False
    log_x: bool = False
    log_y: bool = False
    thin: bool = False
    faint: bool = False
    spikes: bool = False
    crop: bool = False
    diagonal: bool = False
    alike: str = ""
    zoom: float | None = None
    widths: Mapping[str, float] = field(default_factory=dict)


# Title, {q} the quantizer, label of the vertical axis, and form of a metric's panel.
Words = tuple[str, str, Mapping[str, Any]]
SPIKY = {"thin": True, "spikes": True}
FULL_PRECISION: dict[str, Words] = {
    names.LOSS: ("Full-precision loss", "Loss (nats/token)", {}),
    names.SHARPNESS: ("Sharpness", "Top Hessian eigenvalue (nats)", {}),
    names.TRACE: ("Trace", "Hessian trace (nats)", {}),
    names.EIGENVALUES: ("Leading eigenvalues", "Magnitude (nats)", {"thin": True, "log_y": True}),
    "gradient_norm": ("Gradient norm", "L2 norm of the gradient", {**SPIKY, "log_y": True}),
    "weight_norm": ("Weight norm", "L2 norm of the weights", SPIKY),
    names.ACCURACY: ("Accuracy", "Accuracy (%)", {}),
}
QUANTIZED: dict[str, Words] = {
    names.LOSS: ("{q} loss", "Loss (nats/token)", {}),
    names.QUANTIZATION_ERROR: ("{q} error", "Error (%)", {}),
    names.INCREASE: ("{q} loss increase", "Increase δ (nats/token)", {}),
    names.WEIGHT_ERROR: ("{q} weight error", "Mean squared error", {}),
    names.OUTPUT_ERROR: ("{q} output error", "Mean squared error", {}),
    names.DEGRADATION: ("{q} accuracy degradation", "Degradation (%)", {}),
}
# Methods that are called otherwise than by their names in capitals.
METHODS = {"gptqmodel": "GPTQ", "int8": "LLM.int8", "rtn": "rounding"}


def call(quantizers: Iterable[Shown]) -> dict[str, str]:
    """What quantizers are called, by name: the bits where those alone tell them apart, with the
    method where that does, and else their names in the configuration."""
    shown = list(quantizers)
    bits = {each.name: f"{each.bits}-bit" for each in shown}
    methods = {each.name: METHODS.get(each.method, each.method.upper()) for each in shown}
    both = {name: f"{bits[name]} {method}" for name, method in methods.items()}
    named = {name: name for name in bits}
    return next(each for each in (bits, both, named) if len({*each.values()}) == len(named))
