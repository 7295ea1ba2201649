"""Open questions of the paper. Each expectation was written before its first number was measured.

The first line of each function's docstring is the expectation. The paper has no value for it."""

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ptq_dynamics.claims.controlled import (
    BITS,
    CONTROLLED,
    CURVATURE,
    HORIZONS,
    LATER,
    Q3,
    Q4,
    RATES,
    STABLE,
    at_equal_loss,
    loss_gap,
)
from ptq_dynamics.claims.definitions import Claim, Row
from ptq_dynamics.claims.public import PUBLIC
from ptq_dynamics.measure.names import FULL_PRECISION, LOSS, TRACE

if TYPE_CHECKING:
    from ptq_dynamics.claims.samples import Samples

ADAMW = "wsd-3e-3"
FLAT = ("sam-0.1", "sam-0.3", "penalty-0.3", "noise-0.05", "noise-0.1")
ARCHITECTURES = {"moe": "mixture of experts", "mamba": "Mamba-2"}
EXPONENTIAL = [f"exponential-{memory}" for memory in (1, 2, 5, 10, 20, 50)]  # of 190
AVERAGES = ("lawa-5", "lawa-20", *EXPONENTIAL, "soup-branches", "soup-greedy", "decay-of-lawa")
FREE = "schedule-free"
OPTIMIZERS = {"muon": "Muon", "ademamix": "AdEMAMix", "lion": "Lion", FREE: f"{FREE} AdamW"}
DECAYS = {"cooldown-5": 10, "rainbow-172": 18, ADAMW: 38, "cooldown-40": 76}  # of 190
LAWFUL = [
    *(name for run in RATES for name in (run.replace("wsd", "constant"), run)),
    *(f"cosine-{horizon}-{rate}" for horizon in HORIZONS for rate in ("6e-4", "3e-3")),
    *(*LATER, "cooldown-5", "cooldown-40", "cooldown-sqrt", "linear-to-10", "inverse-sqrt"),
]
COOLED = LATER[-3:]
NEWER = ("autoround-4bit", "rotated-4bit", "mxfp4")
BESIDE = ("rotated-w4a4", "smoothquant-w8a8", "autoround-3bit", Q3)
SHAPES = {
    "cooldown-sqrt": "1 − √t cooldown",
    "linear-to-10": "linear to 10 %",
    "cosine-190-3e-3": "cosine",
    "inverse-sqrt": "1/√t",
}


def flat_objectives(data: "Samples") -> Iterator[Row]:
    """Objectives that make minima flatter lower the error at equal loss."""
    runs = (ADAMW, *FLAT)
    yield Row(
        "3-bit error, per tenfold trace at equal loss, over the runs of all objectives",
        data.slope(runs, Q3, TRACE, at_equal_loss=True),
    )
    for name in (*FLAT, "penalty-0.1"):
        yield _at_equal_loss(data, name, f"{name} / plain loss", Q3)
        trace = data.end(name, FULL_PRECISION, TRACE) / data.end(ADAMW, FULL_PRECISION, TRACE)
        yield Row(f"{CURVATURE[TRACE]} at the end: {name} / plain loss", trace)
        yield loss_gap(data, name, name, "plain loss", ADAMW)


def _at_equal_loss(
    data: "Samples", names: str | tuple[str, ...], beside: str, quantizer: str
) -> Row:
    pairs = [(ADAMW, name) for name in ((names,) if isinstance(names, str) else names)]
    plain, other = (
        np.sum([data.at_loss(pair[side], pair, quantizer) for pair in pairs], axis=0)
        for side in (0, 1)
    )
    return Row(f"{BITS[quantizer]} error at equal loss: {beside}", data.ratio(other, plain))


def architectures(data: "Samples") -> Iterator[Row]:
    """The error rises in the decay of a mixture of experts and of a state-space model, too."""
    rises = {}
    for name, quantizer in product(ARCHITECTURES, BITS):
        ends = data.end([f"{name}-rainbow-{at}" for at in (104, 138, 172)], quantizer)
        rises[name, quantizer] = ends / data.over(f"{name}-constant", quantizer)
    both = [np.maximum(rises[name, Q4], 0) for name in ARCHITECTURES]
    says = "4-bit error: ends of cooldowns / stable run, geometric mean of both architectures"
    yield Row(says, np.prod(both, axis=0) ** 0.5)
    for (name, quantizer), rise in rises.items():
        label, bits = ARCHITECTURES[name], BITS[quantizer]
        yield Row(f"{bits} error, {label}: ends of cooldowns / stable run", rise)
        average, decayed = f"{name}-lawa-20", f"{name}-wsd"
        lower = data.end(average, quantizer) / data.end(decayed, quantizer)
        yield Row(f"{bits} error, {label}: LAWA of 20 / end of decay", lower)
        gap = data.end(average, quantizer, LOSS) - data.end(decayed, quantizer, LOSS)
        yield Row(f"{bits} loss, {label}: LAWA of 20 − end of decay", gap, None, "nats")


def optimizers(data: "Samples") -> Iterator[Row]:
    """Muon quantizes better than AdamW at equal loss."""
    for quantizer in (Q4, Q3):
        for name, label in OPTIMIZERS.items():
            yield _at_equal_loss(data, name, f"{label} / AdamW", quantizer)
    for name, label in OPTIMIZERS.items():
        yield loss_gap(data, label, name, "AdamW", ADAMW)


def decay_length(data: "Samples") -> Iterator[Row]:
    """A longer decay quantizes better at equal loss."""
    yield from at_equal_loss(data, DECAYS, "length of the decay")
    for name, label in SHAPES.items():
        yield _at_equal_loss(data, name, f"{label} / linear decay over 20 %", Q4)
    yield loss_gap(data, "decay over 5 %", "cooldown-5", "40 %", "cooldown-40")


def averages(data: "Samples") -> Iterator[Row]:
    """Averages have a lower error than decayed runs at equal loss."""
    pooled = ("lawa-20", *EXPONENTIAL)
    yield _at_equal_loss(data, pooled, "LAWA of 20 and exponential averages / decayed run", Q4)
    for quantizer, name in product(BITS, AVERAGES):
        yield _at_equal_loss(data, name, f"{name} / decayed run", quantizer)
    decayed = data.end(ADAMW, FULL_PRECISION, TRACE)
    for name in AVERAGES:
        trace = data.end(name, FULL_PRECISION, TRACE) / decayed
        yield Row(f"{CURVATURE[TRACE]} at the end: {name} / decayed run", trace)
    for quantizer, bits in BITS.items():
        slope = data.slope(AVERAGES, quantizer, TRACE, at_equal_loss=True)
        yield Row(f"{bits} error, per tenfold trace at equal loss, over averages", slope)


def schedule_law(data: "Samples") -> Iterator[Row]:
    """A law that knows the schedule predicts errors of other schedules better than tokens alone."""
    for quantizer, bits in BITS.items():
        for name in ("schedule", "loss"):
            off = data.held_out(LAWFUL, quantizer, name, "tokens")
            yield Row(f"{bits}, held-out deviation of logarithms: {name} / tokens", off)
        for name in ("tokens", "schedule", "loss"):
            factor = data.held_out(LAWFUL, quantizer, name)
            yield Row(f"{bits}, factor between held-out errors and law of {name}", factor)


def newer_quantizers(data: "Samples") -> Iterator[Row]:
    """The error of newer quantizers rises in decay as GPTQ's does."""
    every = (*NEWER, *BESIDE, Q4)
    ends = {name: data.end(COOLED, name) for name in every}
    stable = {name: data.over(STABLE, name) for name in every}
    pooled = np.sum([ends[name] for name in NEWER], axis=0)
    pooled = pooled / np.sum([stable[name] for name in NEWER], axis=0)
    yield Row("summed errors of three 4-bit methods: ends of cooldowns / stable run", pooled)
    for name in every:
        yield Row(f"{name} error: ends of cooldowns / stable run", ends[name] / stable[name])
    for name in NEWER:
        yield Row(f"error at the ends of cooldowns: {name} / {Q4}", ends[name] / ends[Q4])
    better = ends["autoround-3bit"] / ends[Q3]
    yield Row(f"error at the ends of cooldowns: autoround-3bit / {Q3}", better)


BEYOND = (
    Claim(flat_objectives, "above", ("beyond-flatness",)),
    Claim(architectures, "above", ("beyond-architectures",)),
    Claim(optimizers, "below", ("beyond-optimizers",)),
    Claim(decay_length, "below", ("beyond-schedules",)),
    Claim(averages, "below", ("beyond-averages",)),
    Claim(schedule_law, "below", ("beyond-law",)),
    Claim(newer_quantizers, "above", ("beyond-quantizers",)),
)
EVERY = (*CONTROLLED, *PUBLIC, *BEYOND)
