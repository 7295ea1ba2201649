"""Claims of the paper about its own runs (section 4).

The first line of each function's docstring is the claim. Published values were read off plots, with
an error of about 2 per cent. Comparisons use the ends of cooldowns and the last third of the stable
run. The margin of `alike` is half the published difference between cooldowns and the stable run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import isnan, log10
from typing import TYPE_CHECKING

import numpy as np

from ptq_dynamics.claims.definitions import Claim, Row
from ptq_dynamics.figures.labels import short
from ptq_dynamics.measure.names import (
    CARRIED,
    FULL_PRECISION,
    INCREASE,
    LOSS,
    SHARPNESS,
    TRACE,
)

if TYPE_CHECKING:
    from ptq_dynamics.claims.samples import Sample, Samples

Q3, Q4 = "gptq-3bit", "gptq-4bit"
BITS = {Q4: "4-bit", Q3: "3-bit"}
CURVATURE = {SHARPNESS: "dominant eigenvalue", TRACE: "trace"}
STABLE = "constant-3e-3"
RAINBOW = [f"rainbow-{at:03}" for at in (2, 36, 70, 104, 138, 172)]
LATER = RAINBOW[1:]
RATES = ("wsd-3e-4", "wsd-1e-3", "wsd-3e-3", "wsd-1e-2")
DECAYS = [f"decay-lambda-{decay}" for decay in ("0.0005", "0.001", "0.005", "0.01", "0.05", "0.1")]
HORIZONS = ("020", "088", "156", "190")
LEAST_TOKENS = 20  # per parameter, of horizons that count (Hoffmann et al. 2022)
GRADIENT = "gradient_norm"
AT_EQUAL_TOKENS = "ends of cooldowns / stable run, at equal tokens"


def in_decay(data: "Samples", what: str, *measured: str, published: float | None = None) -> Row:
    """Return the ratio of a metric at the ends of the later cooldowns to that of the stable run."""
    rise = data.end(LATER, *measured) / data.over(STABLE, *measured)
    return Row(f"{what}: ends of cooldowns from 36k steps on / stable run", rise, published)


def rises(data: "Samples", names: Sequence[str], trunk: str = STABLE) -> "list[Sample]":
    """Return 4-bit errors at the ends of cooldowns over those of the stable run at equal tokens."""
    return [data.ratio(data.end(name, Q4), data.at(trunk, Q4, end_of=name)) for name in names]


def of_twice(data: "Samples", names: Sequence[str]) -> "Sample":
    """Return the factor of the 4-bit error at the ends of runs for twice the tokens."""
    tokens = {name: data.number("tokens", name) for name in names}
    return np.asarray(data.tenfold(tokens, [data.end(name, Q4) for name in names]) ** log10(2))


def loss_gap(data: "Samples", label: str, name: str, other_label: str, other: str) -> Row:
    """Return how much larger one final loss in full precision is than another."""
    says = f"loss in full precision: {label} − {other_label}"
    return Row(says, data.gap(name, other), None, "nats")


def rates_of(data: "Samples", names: Sequence[str]) -> dict[str, float]:
    """Return the configured peak rates of runs."""
    return {name: data.number("peak_lr", name) for name in names}


def called(data: "Samples", name: str) -> str:
    """Return the configured peak rate of a run as text, or the name of a run that is not shown."""
    rate = data.number("peak_lr", name)
    return name if isnan(rate) else short(rate)


def at_equal_loss(
    data: "Samples", numbers: Mapping[str, float], what: str, published: float | None = None
) -> Iterator[Row]:
    """Yield by what factor errors at equal loss grow with a number of the runs, given by name."""
    for quantizer, bits in BITS.items():
        errors = [data.at_loss(name, numbers, quantizer) for name in numbers]
        says = f"{bits} error at equal loss, per tenfold {what}"
        yield Row(says, data.tenfold(numbers, errors), published)


def deployed(
    data: "Samples",
    says: str,
    quantizers: Iterable[str],
    above: Sequence[str],
    under: Sequence[str],
    share: float | None = 1.0,
) -> Iterator[Row]:
    """Yield ratios of perplexities after quantization (`Samples.perplexities`)."""
    for quantizer in quantizers:
        ratio = data.perplexities(above, under, quantizer, share)
        yield Row(f"perplexity under {quantizer}: {says}", ratio, deployed=True)


def rise_in_decay(data: "Samples") -> Iterator[Row]:
    """The 4-bit error rises as the learning rate decays."""
    yield in_decay(data, "4-bit error", Q4, published=1.68)
    says = "4-bit error: ends of cooldowns from 36k steps on / stable run, each at equal tokens"
    yield Row(says, data.geometric(rises(data, LATER)), 1.74)
    published_rises = (2.05, 1.88, 1.71, 1.69, 1.69, 1.71)
    for name, rise, published in zip(RAINBOW, rises(data, RAINBOW), published_rises, strict=True):
        branch = f"cooldown from {int(name[-3:])}k steps"
        yield Row(f"4-bit error: {branch} / stable run, at equal tokens", rise, published)
    yield from deployed(data, AT_EQUAL_TOKENS, [Q4], LATER, [STABLE], None)


def schedule_or_tokens(data: "Samples") -> Iterator[Row]:
    """The schedule changes the 4-bit error more than the tokens of a run's last half do."""
    twice = of_twice(data, LATER[1:])
    last = data.geometric(rises(data, LATER[2:]))
    yield Row("4-bit error: effect of decay / effect of twice the tokens", last / twice, 1.63)
    yield Row("4-bit error: effect of decay at the last three cooldowns", last, 1.70)
    yield Row("4-bit error: effect of twice the tokens at the ends of cooldowns", twice, 1.04)
    grown = data.ratio(data.end(LATER[-1], Q4), data.end(LATER[0], Q4))
    both = data.geometric(rises(data, LATER)) / grown
    yield Row("4-bit error: effect of decay / effect of tokens from 28B on", both, 1.70)
    yield Row("4-bit error: last end of a cooldown / end at 28B tokens", grown, 1.02)


def budget_independence(data: "Samples") -> Iterator[Row]:
    """The 4-bit error at the end of decay does not depend on the token budget."""
    grown = data.end(LATER[-2:], Q4) / data.end(LATER[:2], Q4)
    yield Row("4-bit error: ends at 82B and 100B / ends at 28B and 46B tokens", grown, 1.03)
    grown = data.ratio(data.end(LATER, Q4), data.end(RAINBOW[0], Q4))
    yield Row("4-bit error: ends from 28B tokens on / end at 10B", grown, 1.10)
    says = "at 82B, 100B / at 28B, 46B tokens"
    yield from deployed(data, says, [Q4], LATER[-2:], LATER[:2])


def constant_rate(data: "Samples") -> Iterator[Row]:
    """The 4-bit error rises at a constant rate as well."""
    grown = data.ratio(data.over(STABLE, Q4), data.at(STABLE, Q4, share=0.1))
    yield Row("4-bit error of the stable run: last third / 10 % of its tokens", grown, 1.32)
    gained = data.ratio(data.end(LATER[-1], Q4), data.at(LATER[-1], Q4, share=0))
    yield Row("4-bit error: end of the last cooldown / its beginning", gained, 1.71)
    yield from deployed(data, "end / 10 % of the tokens", [Q4], [STABLE], [STABLE], 0.1)


def other_quantizers(data: "Samples") -> Iterator[Row]:
    """AWQ's error rises in decay as GPTQ's does."""
    yield in_decay(data, "AWQ error", "awq-4bit")
    yield in_decay(data, "LLM.int8 error (decides nothing)", "int8")
    yield from deployed(data, AT_EQUAL_TOKENS, ["awq-4bit"], LATER, [STABLE], None)


def peak_rate(data: "Samples") -> Iterator[Row]:
    """A larger peak learning rate quantizes better at equal loss."""
    rates = rates_of(data, RATES)
    yield from at_equal_loss(data, rates, "peak rate", 0.66)
    for quantizer, published in ((Q4, 0.60), (Q3, 0.59)):
        errors = [data.end(name, quantizer) for name in RATES]
        says = f"{BITS[quantizer]} error at the end, per tenfold peak rate"
        yield Row(says, data.tenfold(rates, errors), published)
    run = "wsd-3e-3"
    yield Row("4-bit error at the end: rate 3e-3", 100 * data.end(run, Q4), 1.08, "%")
    carried = data.end(run, FULL_PRECISION, CARRIED)
    yield Row("loss that the blocks carry at the end: rate 3e-3", carried, None, "nats")
    *_, less, more = RATES
    yield loss_gap(data, f"rate {called(data, more)}", more, called(data, less), less)
    yield from deployed(data, "rate 3e-3 / 3e-4", BITS, [RATES[2]], [RATES[0]])
    yield from deployed(data, "rate 1e-2 / 3e-3", BITS, [RATES[3]], [RATES[2]])


def unstable_rates(data: "Samples") -> Iterator[Row]:
    """The order of peak rates goes on beyond the stable ones."""
    both = ("wsd-1e-2", "wsd-3e-2")
    for quantizer, bits in BITS.items():
        less, more = (data.at_loss(name, both, quantizer) for name in both)
        low, high = (called(data, name) for name in both)
        yield Row(f"{bits} error at equal loss: rate {high} / {low}", data.ratio(more, less))
    yield from deployed(data, "rate 3e-2 / 1e-2", BITS, ["wsd-3e-2"], ["wsd-1e-2"])


def averaging(data: "Samples") -> Iterator[Row]:
    """In 3 bit, averaged weights have a lower loss than decayed ones."""
    average, decayed = "lawa-20", "wsd-3e-3"
    gap = data.gap(average, decayed, Q3)
    yield Row("3-bit perplexity: LAWA of 20 / end of decay", np.exp(gap), 0.952)
    yield Row("3-bit loss: LAWA of 20 − end of decay", gap, -0.049, "nats")
    behind = data.gap(average, decayed)
    yield Row("loss in full precision: LAWA of 20 − end of decay", behind, 0.085, "nats")
    gap = data.end(average, FULL_PRECISION, LOSS) - data.over(STABLE, FULL_PRECISION, LOSS)
    yield Row("loss in full precision: LAWA of 20 − stable run", gap, -0.16, "nats")
    error = data.end(average, Q3)
    yield Row("3-bit error: LAWA of 20 / end of decay", error / data.end(decayed, Q3), 0.36)
    yield Row("3-bit error: LAWA of 20 / stable run", error / data.over(STABLE, Q3), 0.71)
    cost = {quantizer: data.end(decayed, quantizer, INCREASE) for quantizer in BITS}
    gained = cost[Q3] - data.end(average, Q3, INCREASE)
    with np.errstate(invalid="ignore", divide="ignore"):
        width = 3 + np.log(gained / behind) / np.log(cost[Q3] / cost[Q4])
    yield Row("bit width below which LAWA of 20 has the lower loss", width, 3.27, "bits")


def kumar(data: "Samples") -> Iterator[Row]:
    """The increase δ grows faster with the budget under cosine schedules than under WSD."""
    budgets = {"cosine": ("cosine-11.5-to-0", "cosine-99.5-to-0"), "WSD": ("wsd-1.5", "wsd-89.5")}
    grown = {}
    for size, (kind, runs) in product(("70m", "160m"), budgets.items()):
        first, last = (data.end(f"kumar-{size}-{run}", Q3, INCREASE) for run in runs)
        grown[size, kind] = first, last
    (first, last), (wsd_first, wsd_last) = grown["160m", "cosine"], grown["160m", "WSD"]
    growth = data.ratio(last * wsd_first, first * wsd_last)
    yield Row("growth of the 3-bit δ with the budget, 160M: cosine / WSD", growth)
    for (size, kind), (first, last) in grown.items():
        says = f"3-bit δ, {size.upper()}, {kind}: longest budget / second"
        yield Row(says, data.ratio(last, first))
    longest = ["kumar-160m-cosine-99.5-to-0"], ["kumar-160m-wsd-89.5"]
    yield from deployed(data, "160M, longest budget: cosine / WSD", [Q3], *longest)


def cosine(data: "Samples") -> Iterator[Row]:
    """Under cosine schedules the peak rate matters more than the horizon."""
    rates, both = ("6e-4", "3e-3"), ("cosine-190-6e-4", "cosine-190-3e-3")
    names = {(h, rate): f"cosine-{h}-{rate}" for h in HORIZONS for rate in rates}
    errors = {at: data.end(name, Q4) for at, name in names.items()}
    first = [names[h, rates[0]] for h in HORIZONS]
    sizes = [data.number("tokens_per_parameter", name) for name in first]
    count = [h for h, size in zip(HORIZONS, sizes, strict=True) if size >= LEAST_TOKENS]
    counted = f"horizons from {LEAST_TOKENS} tokens per parameter on"
    says = f"4-bit error: effect of a tenfold peak rate / effect of a tenfold horizon, {counted}"
    if len(count) < 2:
        data.missing.append(f"fewer than two {counted}")
        yield Row(says, data.tenfold({}, []))
        yield from deployed(data, "rate 3e-3 / 6e-4", [Q4], both[1:], both[:1])
        return
    over_horizons = [data.geometric([errors[h, rate] for h in count]) for rate in rates]
    over_rates = [data.geometric([errors[h, rate] for rate in rates]) for h in count]
    peaks = rates_of(data, [names["190", rate] for rate in rates])
    tokens = {h: data.number("tokens", names[h, rates[0]]) for h in count}
    rate, horizon = data.tenfold(peaks, over_horizons), data.tenfold(tokens, over_rates)
    of_rate, of_horizon = (np.maximum(effect, 1 / effect) for effect in (rate, horizon))
    yield Row(says, of_rate / of_horizon)
    yield Row(f"4-bit error, per tenfold peak rate, {counted}", rate)
    yield Row(f"4-bit error, per tenfold horizon, {counted}", horizon)
    over_range = over_horizons[0] / over_horizons[-1], over_rates[-1] / over_rates[0]
    of_rate, of_horizon = (np.maximum(effect, 1 / effect) for effect in over_range)
    yield Row(f"4-bit error: effect of the rates / of the {counted}", of_rate / of_horizon)
    low, high = (np.sum([errors[h, rate] for h in HORIZONS], axis=0) for rate in rates)
    by_rate = low / high
    last, first = (np.sum([errors[h, rate] for rate in rates], axis=0) for h in ("190", "020"))
    horizon = np.maximum(last / first, first / last)
    says = "4-bit error: effect of the peak rate / effect of the horizon, all horizons"
    yield Row(says, by_rate / horizon)
    words = " / ".join(called(data, name) for name in both)
    yield Row(f"4-bit error: peak rate {words}, over four horizons", by_rate)
    yield Row("4-bit error: longest horizon / shortest, over both rates", last / first)
    less, more = (data.at_loss(name, both, Q4) for name in both)
    yield Row(f"4-bit error at equal loss: peak rate {words}", less / more)
    yield from deployed(data, "rate 3e-3 / 6e-4", [Q4], both[1:], both[:1])


def weight_decay(data: "Samples") -> Iterator[Row]:
    """A larger weight decay quantizes better at equal loss."""
    decays = {name: data.number("weight_decay", name) for name in DECAYS if data.has(name, Q4)}
    yield from at_equal_loss(data, decays, "weight decay")
    both = ("decay-lambda-0.01", "decay-lambda-0.001")
    more, less = (f"{data.number('weight_decay', name):g}" for name in both)
    yield loss_gap(data, f"λ {more}", both[0], less, both[1])
    yield from deployed(data, "λ 0.01 / 0.001", BITS, both[:1], both[1:])


def adamc(data: "Samples") -> Iterator[Row]:
    """AdamC leaves the 4-bit error as it is."""
    changed = data.end("adamc-3e-3", Q4) / data.end("wsd-3e-3", Q4)
    yield Row("4-bit error at the end: AdamC / AdamW", changed)
    # The AdamW run branches at 80 % of the budget; the AdamC run starts from fresh weights.
    for label, trunk, run, late in (
        ("AdamW", STABLE, "wsd-3e-3", 0.75),
        ("AdamC", "adamc-3e-3", "adamc-3e-3", 0.95),
    ):
        stable = data.over(trunk, FULL_PRECISION, GRADIENT, shares=(0.7, 0.8))
        decayed = data.over(run, FULL_PRECISION, GRADIENT, shares=(late, 1))
        yield Row(f"gradient norm, {label}: last 5 % of the budget / 70 to 80 %", decayed / stable)
    yield from deployed(data, "AdamC / AdamW", [Q4], ["adamc-3e-3"], ["wsd-3e-3"])


def curvature(data: "Samples") -> Iterator[Row]:
    """The Hessian's dominant eigenvalue (the largest in magnitude) rises in decay."""
    for metric, label in CURVATURE.items():
        yield in_decay(data, label, FULL_PRECISION, metric)
    for metric, label in CURVATURE.items():
        values = [data.end(name, FULL_PRECISION, metric) for name in RATES]
        rates = rates_of(data, RATES)
        yield Row(f"{label} at the end, per tenfold peak rate", data.tenfold(rates, values))
    # LAWA has its curvature measured at one seed.
    first = replace(data, seeds=data.seeds[:1])
    for metric, label in CURVATURE.items():
        average = first.end("lawa-20", FULL_PRECISION, metric)
        decayed = first.end("wsd-3e-3", FULL_PRECISION, metric)
        yield Row(f"{label}: LAWA of 20 / end of decay", average / decayed)


def distance(data: "Samples") -> Iterator[Row]:
    """At larger peak rates quantization harms the loss less."""
    rates = rates_of(data, RATES)
    rises = [data.end(name, Q4, INCREASE) for name in RATES]
    says = "4-bit rise of the loss at the end, per tenfold peak rate"
    yield Row(says, data.tenfold(rates, rises), 0.61)
    for quantizer, bits in BITS.items():
        moved = [data.distance(name, quantizer) for name in RATES]
        says = f"{bits} distance of the weights, per tenfold peak rate"
        yield Row(says, data.tenfold(rates, moved))


def flatness(data: "Samples") -> Iterator[Row]:
    """Flatter minima go with lower error."""
    runs = [name for run in RATES for name in (run.replace("wsd", "constant"), run)]
    for metric in (TRACE, SHARPNESS):
        label = CURVATURE[metric]
        yield Row(f"3-bit error, per tenfold {label}", data.slope(runs, Q3, metric))
        rest = data.slope(runs, Q3, metric, at_equal_loss=True)
        yield Row(f"the same at equal loss, per tenfold {label}", rest)


CONTROLLED = (
    Claim(rise_in_decay, "Decay raises the error", "above", ("fig04",), 1),
    Claim(budget_independence, "The budget does not matter", "alike", ("fig04",), 2, margin=1.3),
    Claim(peak_rate, "Larger rates lower the error", "below", ("fig06",), 3),
    Claim(averaging, "Averages beat decays in 3-bit loss", "below", ("fig07", "fig06"), 4),
    Claim(kumar, "Cosines grow faster than WSD", "above", ("fig05",), 8),
    Claim(cosine, "The rate outweighs the horizon", "above", ("fig21",), 9),
    Claim(weight_decay, "Weight decay lowers the error", "below", ("fig19",), 10),
    Claim(adamc, "AdamC leaves the error as it is", "alike", ("fig20",), 11, margin=1.3),
    Claim(curvature, "Decay raises the curvature", "above", ("fig09", "fig26", "minima"), 12),
    Claim(distance, "Larger rates harm the loss less", "below", ("fig06", "fig08", "fig25"), 13),
    Claim(other_quantizers, "Decay raises AWQ's error", "above", ("fig10",), 14),
    Claim(schedule_or_tokens, "Schedule rather than tokens", "above", ("fig04",)),
    Claim(constant_rate, "A constant rate raises the error", "above", ("fig04",)),
    Claim(flatness, "Flatter minima, lower error", "above", ("flatness",)),
    Claim(unstable_rates, "Unstable rates keep the order", "below", ("rates",)),
)
