"""What metrics and quantizers are called in titles and on axes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from string import ascii_lowercase

from ptq_dynamics.figures.panel import Panel
from ptq_dynamics.figures.settings import Shown
from ptq_dynamics.measure.names import (
    ACCURACY,
    DEGRADATION,
    EIGENVALUES,
    INCREASE,
    LOSS,
    OUTPUT_ERROR,
    QUANTIZATION_ERROR,
    SHARPNESS,
    TRACE,
    WEIGHT_ERROR,
)


@dataclass(frozen=True)
class Words:
    """Title of a metric, {q} the quantizer, its axis label, and the form of its panel (see
    `Panel`)."""

    title: str
    label: str
    percent_y: bool = False
    thin: bool = False
    spikes: bool = False
    log_y: bool = False


FULL_PRECISION = {
    LOSS: Words("Full-precision loss", "Loss (nats/token)"),
    SHARPNESS: Words("Sharpness", "Top Hessian eigenvalue (nats)"),
    TRACE: Words("Trace", "Hessian trace (nats)"),
    EIGENVALUES: Words("Leading eigenvalues", "Magnitude (nats)", thin=True, log_y=True),
    # Its spikes are many times its level.
    "gradient_norm": Words(
        "Gradient norm", "L2 norm of the gradient", thin=True, spikes=True, log_y=True
    ),
    "weight_norm": Words("Weight norm", "L2 norm of the weights", thin=True, spikes=True),
    ACCURACY: Words("Accuracy", "Accuracy (%)", percent_y=True),
}
QUANTIZED = {
    LOSS: Words("{q} loss", "Loss (nats/token)"),
    QUANTIZATION_ERROR: Words("{q} error", "Error (%)", percent_y=True),
    INCREASE: Words("{q} loss increase", "Increase δ (nats/token)"),
    WEIGHT_ERROR: Words("{q} weight error", "Mean squared error"),
    OUTPUT_ERROR: Words("{q} output error", "Mean squared error"),
    DEGRADATION: Words("{q} accuracy degradation", "Degradation (%)", percent_y=True),
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


def panel(name: str, metric: str, quantizer: str | None, x: str, group: str = "") -> Panel:
    """A panel of a metric, of the quantizer that is called so or in full precision, against `x`."""
    words = QUANTIZED[metric] if quantizer else FULL_PRECISION[metric]
    what = words.title.format(q=quantizer)
    title = f"({name}) {group}\n{what}" if group else f"({name}) {what}"
    return Panel(
        name,
        title,
        x,
        words.label,
        percent_y=words.percent_y,
        thin=words.thin,
        spikes=words.spikes,
        log_y=words.log_y,
    )


def learning_rate(uncertain: Sequence[str]) -> str:
    """Label of the axis of the learning rate, with the models of which it is `uncertain`."""
    return "Learning rate" + (f"\n(uncertain of {', '.join(uncertain)})" if uncertain else "")


def call(quantizers: Iterable[Shown]) -> dict[str, str]:
    """What quantizers are called, by name: the bits where those alone tell them apart, with the
    method where that does, and else their names in the configuration."""
    shown = {quantizer.name: quantizer for quantizer in quantizers}
    bits = {name: f"{quantizer.bits}-bit" for name, quantizer in shown.items()}
    methods = {name: METHODS.get(each.method, each.method) for name, each in shown.items()}
    both = {name: f"{bits[name]} {methods[name]}" for name in shown}
    for names in (bits, both):
        if len({*names.values()}) == len(names):
            return names
    return {name: name for name in shown}


def letters() -> Iterator[str]:
    """Names of panels: a to z, then aa, ab and so on."""
    for length in count(1):
        yield from map("".join, product(ascii_lowercase, repeat=length))
