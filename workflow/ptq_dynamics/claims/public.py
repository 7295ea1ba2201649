"""Claims of the paper about public models, or about their miniatures below scale paper."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ptq_dynamics.claims.controlled import BITS, Q3, Q4, at_equal_loss, deployed, rates_of
from ptq_dynamics.claims.definitions import Claim, Row
from ptq_dynamics.measure.names import DEGRADATION, FULL_PRECISION, LOSS

if TYPE_CHECKING:
    from ptq_dynamics.claims.samples import Samples

SIZES = {"1b": 3, "7b": 3, "13b": 4, "32b": 3}  # ingredients of stage 2
SHORT = "stages of miniatures have few steps, and their tasks are near chance"


def ingredients(size: str) -> list[str]:
    """Return the ingredients of the soup after stage 2 of an OLMo-2."""
    return [f"olmo2-{size}-ingredient-{n + 1}" for n in range(SIZES[size])]


def smollm3(data: "Samples") -> Iterator[Row]:
    """SmolLM3's error doubles along its decay."""
    run = "smollm3-decay"
    for quantizer, published in ((Q3, 1.94), (Q4, 1.92)):
        rise = data.ratio(data.end(run, quantizer), data.at(run, quantizer, share=0))
        yield Row(f"{BITS[quantizer]} error: end of decay / its beginning", rise, published)
    gap = data.end(run, FULL_PRECISION, LOSS) - data.at(run, FULL_PRECISION, LOSS, share=0)
    yield Row("loss in full precision: end of decay − its beginning", gap, -0.11, "nats")
    yield from deployed(data, "end of decay / its beginning", BITS, [run], [run], 0.0)


def olmo2(data: "Samples") -> Iterator[Row]:
    """OLMo-2's 3-bit error rises through stage 2."""
    first = np.sum([data.at(f"olmo2-{size}", Q3, share=0) for size in SIZES], axis=0)
    end = np.sum([data.end(f"olmo2-{size}", Q3) for size in SIZES], axis=0)
    after = np.sum([data.end(ingredients(size), Q3) for size in SIZES], axis=0)
    says = "3-bit error, sum of four sizes: ends of stage 2 / end of stage 1 (paper: no 7B)"
    yield Row(says, data.ratio(after, end), 1.25)
    says = "3-bit error, sum of four sizes: end of stage 1 / its beginning"
    yield Row(says, data.ratio(end, first), 3.12)
    larger = data.ratio(data.end("olmo2-32b", Q3), data.end("olmo2-1b", Q3))
    yield Row("3-bit error at the end of stage 1: 32B / 1B", larger, 0.52)
    for size in ("7b", "13b", "32b"):
        soup = data.ratio(data.end(f"olmo2-{size}-soup", Q3), data.end(ingredients(size), Q3))
        yield Row(f"3-bit error: soup of {size.upper()} / its ingredients", soup)
    for size in SIZES:
        says = f"{size}, ends of stage 2 / stage 1"
        yield from deployed(data, says, [Q3], ingredients(size), [f"olmo2-{size}"])


def post_training(data: "Samples") -> Iterator[Row]:
    """The released SmolLM3 has a lower error than mid-training."""
    stages = {
        "released model": data.any("smollm3-main", "smollm3-released"),
        "APO": data.any("smollm3-apo-soup", "smollm3-apo-soup-released"),
        "SFT": "smollm3-sft",
        "mid-training": "smollm3-mid",
        "long context": "smollm3-long-64k",
        "pre-training": "smollm3-decay",
    }
    for one, other in (("released model", "mid-training"), *pairwise(stages)):
        lower = data.ratio(data.end(stages[one], Q3), data.end(stages[other], Q3))
        yield Row(f"3-bit error: {one} / {other}", lower)


def accuracy_follows_loss(data: "Samples") -> Iterator[Row]:
    """Stages of SmolLM3 that lose more loss lose more accuracy."""
    most, least = "smollm3-mid", data.any("smollm3-main", "smollm3-released")
    lost = data.ratio(data.end(most, Q3, DEGRADATION), data.end(least, Q3, DEGRADATION))
    yield Row("3-bit degradation of the accuracy: mid-training / released model", lost)


def apertus_and_amber(data: "Samples") -> Iterator[Row]:
    """Apertus' error rises in decay."""
    for quantizer in (Q3, Q4):
        bits = BITS[quantizer]
        ends = [data.at("apertus-decay", quantizer, share=share) for share in (0, 1)]
        yield Row(f"{bits} error of Apertus: end of decay / its beginning", data.ratio(*ends[::-1]))
        rise = data.ratio(data.end("amber", quantizer), data.at("amber", quantizer, share=0.5))
        yield Row(f"{bits} error of Amber: end of its cosine / middle", rise)
        runs = ("apertus", "amber")
        early = [data.over(run, quantizer, shares=(0, 0.25), end_of="amber") for run in runs]
        says = f"{bits} error over the first quarter of Amber's tokens: Apertus / Amber"
        yield Row(says, data.ratio(*early))
    decay = ["apertus-decay"]
    yield from deployed(data, "Apertus, end of decay / start", BITS, decay, decay, 0.0)


def opensci(data: "Samples") -> Iterator[Row]:
    """OpenSci's 4-bit error rises in decay."""
    runs = ("opensci-1.3b-decay", "opensci-1.7b-decay")
    first = np.sum([data.at(run, Q4, share=0) for run in runs], axis=0)
    end = np.sum([data.end(run, Q4) for run in runs], axis=0)
    yield Row("4-bit error, sum of two sizes: end of decay / its beginning", data.ratio(end, first))
    for run in runs:
        rise = data.ratio(data.end(run, Q4), data.at(run, Q4, share=0))
        yield Row(f"4-bit error of {run[8:12].upper()}: end of decay / its beginning", rise)
    yield from deployed(data, "both sizes, end of decay / start", [Q4], runs, runs, 0.0)


def rate_of_7b(data: "Samples") -> Iterator[Row]:
    """OLMo-2 7B repeats claim 3."""
    runs = [f"olmo2-7b-lr-{rate}-decay" for rate in ("3e-4", "6e-4", "9e-4", "12e-4")]
    yield from at_equal_loss(data, rates_of(data, runs), "peak rate")
    yield from deployed(data, "rate 1.2e-3 / 3e-4", BITS, runs[-1:], runs[:1])


PUBLIC = (
    Claim(smollm3, "SmolLM3's error doubles in decay", "above", ("fig01",), 5),
    Claim(olmo2, "OLMo-2's error rises in stage 2", "above", ("fig02",), 6),
    Claim(
        post_training, "SmolLM3 recovers in post-training", "below", ("fig03",), 7, in_small=SHORT
    ),
    Claim(apertus_and_amber, "Decay raises Apertus' error", "above", ("fig13", "fig12"), 15),
    Claim(opensci, "Decay raises OpenSci's error", "above", ("fig11",)),
    Claim(
        accuracy_follows_loss, "Accuracy falls with the loss", "above", ("fig03",), in_small=SHORT
    ),
    Claim(rate_of_7b, "Larger rates help OLMo-2 7B", "below", ("fig23",)),
)
