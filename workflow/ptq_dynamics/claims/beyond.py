"""Questions that the paper leaves open, each with an expectation that was written before its runs.

The first line of each function's docstring is the expectation. The paper has no value for it."""

from collections.abc import Iterator
from typing import Any

from ptq_dynamics.claims.controlled import (
    BITS,
    CONTROLLED,
    CURVATURE,
    HORIZONS,
    LATER,
    Q3,
    Q4,
    RATES,
    at_equal_loss,
)
from ptq_dynamics.claims.public import PUBLIC
from ptq_dynamics.claims.settings import Claim, Row
from ptq_dynamics.measure.names import FULL_PRECISION, LOSS, TRACE

ADAMW = "wsd-3e-3"
FLAT = ("sam-0.1", "sam-0.3", "penalty-0.3", "noise-0.05", "noise-0.1")
OPTIMIZERS = {"muon": "Muon", "ademamix": "AdEMAMix", "schedule-free": "schedule-free AdamW"}
DECAYS = {"cooldown-5": 10, "rainbow-172": 18, ADAMW: 38, "cooldown-40": 76}  # of 190
LAWFUL = [
    *(name for run in RATES for name in (run.replace("wsd", "constant"), run)),
    *(f"cosine-{horizon}-{rate}" for horizon in HORIZONS for rate in ("6e-4", "3e-3")),
    *(*LATER, "cooldown-5", "cooldown-40", "cooldown-sqrt", "linear-to-10", "inverse-sqrt"),
]
SHAPES = {
    "cooldown-sqrt": "1 − √t cooldown",
    "linear-to-10": "linear to 10 %",
    "cosine-190-3e-3": "cosine",
    "inverse-sqrt": "1/√t",
}


def flat_objectives(data: Any) -> Iterator[Row]:
    """Objectives that make minima flatter lower the error at equal loss."""
    runs = (ADAMW, *FLAT)
    yield Row(
        "3-bit error, per tenfold trace at equal loss, over the runs of all objectives",
        data.slope(runs, Q3, TRACE, at_equal_loss=True),
    )
    for name in FLAT:
        yield _at_equal_loss(data, name, f"{name} / plain loss", Q3)
        trace = data.end(name, FULL_PRECISION, TRACE) / data.end(ADAMW, FULL_PRECISION, TRACE)
        yield Row(f"{CURVATURE[TRACE]} at the end: {name} / plain loss", trace)


def _at_equal_loss(data: Any, name: str, beside: str, quantizer: str) -> Row:
    both = (ADAMW, name)
    plain, other = (data.at_loss(each, both, quantizer) for each in both)
    return Row(f"{BITS[quantizer]} error at equal loss: {beside}", other / plain)


def optimizers(data: Any) -> Iterator[Row]:
    """Muon quantizes better than AdamW at equal loss."""
    for quantizer in (Q4, Q3):
        for name, label in OPTIMIZERS.items():
            yield _at_equal_loss(data, name, f"{label} / AdamW", quantizer)
    for name, label in OPTIMIZERS.items():
        gap = data.end(name, FULL_PRECISION, LOSS) - data.end(ADAMW, FULL_PRECISION, LOSS)
        yield Row(f"loss in full precision: {label} − AdamW", gap, None, "nats")


def decay_length(data: Any) -> Iterator[Row]:
    """A longer decay quantizes better at equal loss."""
    yield from at_equal_loss(data, DECAYS, "length of the decay")
    for name, label in SHAPES.items():
        yield _at_equal_loss(data, name, f"{label} / linear decay over 20 %", Q4)


def schedule_law(data: Any) -> Iterator[Row]:
    """A law that knows the schedule predicts errors of other schedules better than tokens alone."""
    for quantizer, bits in BITS.items():
        for name in ("schedule", "loss"):
            ratio = data.held_out(LAWFUL, quantizer, name, "tokens")
            yield Row(f"{bits}, held-out deviation of logarithms: {name} / tokens", ratio)
        for name in ("tokens", "schedule", "loss"):
            factor = data.held_out(LAWFUL, quantizer, name)
            yield Row(f"{bits}, factor between held-out errors and law of {name}", factor)


BEYOND = (
    Claim(flat_objectives, "above", ("beyond-flatness",)),
    Claim(optimizers, "below", ("beyond-optimizers",)),
    Claim(decay_length, "below", ("beyond-schedules",)),
    Claim(schedule_law, "below", ("beyond-law",)),
)
EVERY = (*CONTROLLED, *PUBLIC, *BEYOND)
