"""What a panel of a figure is, and what metrics and quantizers are called in it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ptq_dynamics.figures.settings import Shown
from ptq_dynamics.measure import names


@dataclass(frozen=True)
class Panel:
    """One panel: labels with units; `tokens_x` and `percent_y` format the ticks; `zoom` shows what
    is left of it; `thin` draws without markers; with `spikes`, what stands far above its neighbours
    does not set the scale; with `crop`, what comes before the first hundredth of the horizontal
    axis neither; `diagonal` draws the line of equal values; `widths` in points are those of curves
    that may lie on each other; `name` is its letter."""

    title: str
    x: str
    y: str
    name: str = ""
    right: str | None = None
    tokens_x: bool = False
    percent_y: bool = False
    log_x: bool = False
    log_y: bool = False
    thin: bool = False
    spikes: bool = False
    crop: bool = False
    diagonal: bool = False
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
    names.ACCURACY: ("Accuracy", "Accuracy (%)", {"percent_y": True}),
}
QUANTIZED: dict[str, Words] = {
    names.LOSS: ("{q} loss", "Loss (nats/token)", {}),
    names.QUANTIZATION_ERROR: ("{q} error", "Error (%)", {"percent_y": True}),
    names.INCREASE: ("{q} loss increase", "Increase δ (nats/token)", {}),
    names.WEIGHT_ERROR: ("{q} weight error", "Mean squared error", {}),
    names.OUTPUT_ERROR: ("{q} output error", "Mean squared error", {}),
    names.DEGRADATION: ("{q} accuracy degradation", "Degradation (%)", {"percent_y": True}),
}
METHODS = {
    "gptq": "GPTQ",
    "gptqmodel": "GPTQ",
    "autogptq": "GPTQ",
    "awq": "AWQ",
    "int8": "LLM.int8",
    "nf4": "NF4",
    "rtn": "rounding",
}


def call(quantizers: Iterable[Shown]) -> dict[str, str]:
    """What quantizers are called, by name: the bits where those alone tell them apart, with the
    method where that does, and else their names in the configuration."""
    shown = list(quantizers)
    bits = {each.name: f"{each.bits}-bit" for each in shown}
    both = {each.name: f"{each.bits}-bit {METHODS.get(each.method, each.method)}" for each in shown}
    named = {each.name: each.name for each in shown}
    return next(each for each in (bits, both, named) if len({*each.values()}) == len(named))
