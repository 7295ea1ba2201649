"""Open questions of the paper. Each expectation was written before its first number was measured.

The first line of each function's docstring is the expectation. The paper has no value for it."""

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ptq_dynamics.claims.controlled import (
    AT_EQUAL_TOKENS,
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
    deployed,
    loss_gap,
    of_twice,
    rises,
)
from ptq_dynamics.claims.definitions import Claim, Row
from ptq_dynamics.claims.public import PUBLIC
from ptq_dynamics.measure.names import FULL_PRECISION, LOSS, TRACE

if TYPE_CHECKING:
    from ptq_dynamics.claims.samples import Sample, Samples

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
PLAIN = "rainbow-172"  # the decay over the last tenth
# An average and a decayed run with equal tokens, by the paper's peak rate.
SMALL, LARGE, LARGE_BATCH = "rate 3e-4", "rate 3e-3", "rate 3e-3, batch × 4"
AVERAGED = {
    SMALL: ("lawa-20-of-3e-4", "longer-3e-4-decay"),
    "rate 1e-3": ("lawa-20-of-1e-3", "longer-1e-3-decay"),
    LARGE: ("lawa-20", ADAMW),
    LARGE_BATCH: ("larger-batch-lawa", "larger-batch-decay"),
}
MUON = "muon-best"
THRICE = [f"thrice-{at}" for at in (172, 267, 362, 457, 552)]  # of 190
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
    yield from deployed(data, "five objectives / plain loss", [Q3], FLAT, [ADAMW])


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
        gap = data.gap(average, decayed, quantizer)
        yield Row(f"{bits} loss, {label}: LAWA of 20 − end of decay", gap, None, "nats")
    for name in ARCHITECTURES:
        runs = [f"{name}-rainbow-172"], [f"{name}-constant"]
        yield from deployed(data, f"{name}, end / stable run", [Q4], *runs)


def optimizers(data: "Samples") -> Iterator[Row]:
    """Muon quantizes better than AdamW at equal loss."""
    for quantizer in (Q4, Q3):
        for name, label in OPTIMIZERS.items():
            yield _at_equal_loss(data, name, f"{label} / AdamW", quantizer)
    for name, label in OPTIMIZERS.items():
        yield loss_gap(data, label, name, "AdamW", ADAMW)
    for name, label in OPTIMIZERS.items():
        yield from deployed(data, f"{label} / AdamW", BITS, [name], [ADAMW])


def decay_length(data: "Samples") -> Iterator[Row]:
    """A longer decay quantizes better at equal loss."""
    yield from at_equal_loss(data, DECAYS, "length of the decay")
    for name, label in SHAPES.items():
        yield _at_equal_loss(data, name, f"{label} / linear decay over 20 %", Q4)
    yield loss_gap(data, "decay over 5 %", "cooldown-5", "40 %", "cooldown-40")
    yield from deployed(data, "decay over 40 % / 5 %", BITS, ["cooldown-40"], ["cooldown-5"])


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
    says = "LAWA and exponential / decayed run"
    yield from deployed(data, says, BITS, pooled, [ADAMW])


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
    yield from deployed(data, AT_EQUAL_TOKENS, NEWER, COOLED, [STABLE], None)


def critical_bits(data: "Samples") -> Iterator[Row]:
    """Averages win over decayed runs at more bits, if the peak rate is smaller."""
    nets = {
        rate: np.stack([data.gap(average, decayed, f"gptq-{bits}bit") for bits in (2, 3, 4)])
        for rate, (average, decayed) in AVERAGED.items()
    }
    crossed = {rate: _crossing(net) for rate, net in nets.items()}
    says = "bits below which the average has the lower loss: "
    yield Row(f"{says}{SMALL} / 3e-3", crossed[SMALL] / crossed[LARGE])
    yield Row(f"{says}{LARGE_BATCH} / × 1", crossed[LARGE_BATCH] / crossed[LARGE])
    for rate, (average, decayed) in AVERAGED.items():
        says = f"{rate}: bits below which the average has the lower loss"
        yield Row(says, crossed[rate], None, "bits")
        for bits, net in zip((2, 3, 4), nets[rate], strict=True):
            yield Row(f"{rate}, {bits}-bit loss: LAWA of 20 − end of decay", net, None, "nats")
        net = data.gap(average, decayed)
        yield Row(f"{rate}, loss in full precision: LAWA of 20 − end of decay", net, None, "nats")


def _crossing(nets: "Sample") -> "Sample":
    """Return where a line through values [3, replicates] at 2, 3 and 4 bits crosses zero: 2 if the
    first is above zero, 4 if no value is, and NaN if one is missing."""
    place = np.where(nets[0] > 0, 2.0, 4.0)
    for bits in (3, 2):
        low, high = nets[bits - 2], nets[bits - 1]
        rise = np.where(high > low, high - low, np.inf)
        place = np.where((low <= 0) & (high > 0), bits - low / rise, place)
    return np.where(np.isnan(nets).any(axis=0), np.nan, place)


def last_tenth(data: "Samples") -> Iterator[Row]:
    """Quantization-aware decay has a lower 3-bit loss than decay followed by GPTQ."""
    full = data.end(PLAIN, FULL_PRECISION, LOSS)
    aware, plain = data.end("aware-3", "rtn-3bit", LOSS), data.end(PLAIN, Q3, LOSS)
    says = "3-bit loss above the decayed run's in full precision: aware, rounded / decay, GPTQ"
    yield Row(says, (aware - full) / (plain - full))
    for bits in (4, 3, 2):
        gptq, rounding = f"gptq-{bits}bit", f"rtn-{bits}bit"
        arms = [
            ("LAWA, GPTQ", "lawa-20", gptq),
            ("LAWA, then decay, GPTQ", "lawa-then-decay", gptq),
        ]
        for label, run in (("aware", f"aware-{bits}"), ("decay, then aware", f"late-aware-{bits}")):
            arms += [(f"{label}, rounded", run, rounding), (f"{label}, GPTQ", run, gptq)]
        for label, name, quantizer in arms:
            net = data.gap(name, PLAIN, quantizer, gptq)
            yield Row(f"{bits}-bit loss: {label} − decay, GPTQ", net, None, "nats")
    runs = [f"{when}aware-{bits}" for when in ("", "late-") for bits in (4, 3, 2)]
    for name in ("lawa-20", "lawa-then-decay", *runs):
        yield loss_gap(data, name, name, "decay", PLAIN)


def longer_budget(data: "Samples") -> Iterator[Row]:
    """Up to three budgets, the 4-bit error at the end of decay does not depend on the tokens."""
    grown = data.end(THRICE[-2:], Q4) / data.end(THRICE[:2], Q4)
    yield Row("4-bit error: ends at 2.5 and 3 budgets / ends at 1 and 1.5 budgets", grown)
    decay = data.geometric(rises(data, THRICE[2:], "thrice"))
    says = "4-bit error: effect of decay / effect of twice the tokens, at 3 budgets"
    yield Row(says, decay / of_twice(data, THRICE[1:]))
    yield Row("4-bit error: effect of decay at 2, 2.5 and 3 budgets", decay)
    for first, budgets in enumerate((1, 1.5, 2)):
        says = f"4-bit error: effect of twice the tokens, ends from {budgets} budgets on"
        yield Row(says, of_twice(data, THRICE[first:]))
    yield from deployed(data, "at 2.5, 3 / 1, 1.5 budgets", [Q4], THRICE[-2:], THRICE[:2])


def best_rates(data: "Samples") -> Iterator[Row]:
    """Muon has a higher error than AdamW at equal loss, each at its best rate."""
    for quantizer in (Q4, Q3):
        yield _at_equal_loss(data, MUON, "Muon / AdamW, best rates", quantizer)
        yield _at_equal_loss(data, "muon", "Muon at AdamW's rate / AdamW", quantizer)
    for name, label in ((MUON, "Muon, best rate"), ("muon", "Muon, AdamW's rate")):
        yield loss_gap(data, label, name, "AdamW", ADAMW)
    yield from deployed(data, "Muon / AdamW, best rates", BITS, [MUON], [ADAMW])


BEYOND = (
    Claim(flat_objectives, "Flat objectives lower the error", "above", ("beyond-flatness",)),
    Claim(architectures, "Decay harms MoE and Mamba-2", "above", ("beyond-architectures",)),
    Claim(optimizers, "Muon beats AdamW", "below", ("beyond-optimizers",)),
    Claim(decay_length, "Longer decays lower the error", "below", ("beyond-schedules",)),
    Claim(averages, "Averages beat decays in error", "below", ("beyond-averages",)),
    Claim(schedule_law, "Schedules predict the error", "below", ("beyond-law",)),
    Claim(newer_quantizers, "Decay harms newer quantizers", "above", ("beyond-quantizers",)),
    Claim(critical_bits, "Smaller rates: averages win at more bits", "above", ("beyond-bits",)),
    Claim(last_tenth, "Aware decay beats decay at 3 bits", "below", ("beyond-deployment",)),
    Claim(longer_budget, "Three budgets: no growth", "alike", ("beyond-budget",), margin=1.3),
    Claim(best_rates, "Muon's error at best rates", "above", ("beyond-muon",)),
)
EVERY = (*CONTROLLED, *PUBLIC, *BEYOND)
