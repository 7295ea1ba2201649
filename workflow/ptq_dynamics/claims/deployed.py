"""The loss after quantization, beside claims about errors: ratios of perplexities."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ptq_dynamics.claims.beyond import (
    ADAMW,
    COOLED,
    EXPONENTIAL,
    FLAT,
    MUON,
    NEWER,
    OPTIMIZERS,
    THRICE,
)
from ptq_dynamics.claims.controlled import BITS, LATER, Q3, Q4, RATES, STABLE
from ptq_dynamics.claims.definitions import Row
from ptq_dynamics.claims.public import SIZES, ingredients
from ptq_dynamics.measure.names import LOSS

if TYPE_CHECKING:
    from ptq_dynamics.claims.samples import Sample, Samples

DECAY = "ends of cooldowns / stable run, at equal tokens"


class Contrast(NamedTuple):
    """Geometric mean perplexities at the ends of the runs `above`, divided by those of the runs
    `under`. These are at a share of their tokens, or without a share where each run above ends."""

    says: str
    quantizers: Sequence[str]
    above: Sequence[str]
    under: Sequence[str]
    share: float | None = 1.0

    def ratio(self, data: "Samples", quantizer: str) -> "Sample":
        """Return the ratio under a quantizer."""
        above = [data.end(name, quantizer, LOSS) for name in self.above]
        if self.share is None:
            at = [(self.under[0], name) for name in self.above]
            under = [data.at(name, quantizer, LOSS, end_of=other) for name, other in at]
        else:
            under = [data.at(name, quantizer, LOSS, share=self.share) for name in self.under]
        return np.asarray(np.exp(np.mean(above, axis=0) - np.mean(under, axis=0)))


def contrasts() -> dict[str, list[Contrast]]:
    """Return the contrasts beside claims, by the claim's name."""
    both = (*BITS,)
    late, early, low, rate, high = LATER[-2:], LATER[:2], RATES[0], RATES[2], RATES[3]
    smollm3, apertus = ["smollm3-decay"], ["apertus-decay"]
    opensci = ["opensci-1.3b-decay", "opensci-1.7b-decay"]
    cosine, wsd = ["kumar-160m-cosine-99.5-to-0"], ["kumar-160m-wsd-89.5"]
    of_7b = ["olmo2-7b-lr-12e-4-decay"], ["olmo2-7b-lr-3e-4-decay"]
    one = {
        "rise-in-decay": Contrast(DECAY, [Q4], LATER, [STABLE], None),
        "budget-independence": Contrast("at 82B, 100B / at 28B, 46B tokens", [Q4], late, early),
        "constant-rate": Contrast("end / 10 % of the tokens", [Q4], [STABLE], [STABLE], 0.1),
        "other-quantizers": Contrast(DECAY, ["awq-4bit"], LATER, [STABLE], None),
        "unstable-rates": Contrast("rate 3e-2 / 1e-2", both, ["wsd-3e-2"], ["wsd-1e-2"]),
        "kumar": Contrast("160M, longest budget: cosine / WSD", [Q3], cosine, wsd),
        "cosine": Contrast("rate 3e-3 / 6e-4", [Q4], ["cosine-190-3e-3"], ["cosine-190-6e-4"]),
        "weight-decay": Contrast(
            "λ 0.01 / 0.001", both, ["decay-lambda-0.01"], ["decay-lambda-0.001"]
        ),
        "adamc": Contrast("AdamC / AdamW", [Q4], ["adamc-3e-3"], ["wsd-3e-3"]),
        "smollm3": Contrast("end of decay / its beginning", both, smollm3, smollm3, 0.0),
        "apertus-and-amber": Contrast("Apertus, end of decay / start", both, apertus, apertus, 0.0),
        "opensci": Contrast("both sizes, end of decay / start", [Q4], opensci, opensci, 0.0),
        "rate-of-7b": Contrast("rate 1.2e-3 / 3e-4", both, *of_7b),
        "flat-objectives": Contrast("five objectives / plain loss", [Q3], FLAT, [ADAMW]),
        "decay-length": Contrast("decay over 40 % / 5 %", both, ["cooldown-40"], ["cooldown-5"]),
        "averages": Contrast(
            "LAWA and exponential / decayed run", both, ("lawa-20", *EXPONENTIAL), [ADAMW]
        ),
        "newer-quantizers": Contrast(DECAY, NEWER, COOLED, [STABLE], None),
        "longer-budget": Contrast("at 2.5, 3 / 1, 1.5 budgets", [Q4], THRICE[-2:], THRICE[:2]),
        "best-rates": Contrast("Muon / AdamW, best rates", both, [MUON], [ADAMW]),
    }
    several = {
        "peak-rate": [
            Contrast("rate 3e-3 / 3e-4", both, [rate], [low]),
            Contrast("rate 1e-2 / 3e-3", both, [high], [rate]),
        ],
        "olmo2": [
            Contrast(f"{n}, ends of stage 2 / stage 1", [Q3], ingredients(n), [f"olmo2-{n}"])
            for n in SIZES
        ],
        "architectures": [
            Contrast(f"{n}, end / stable run", [Q4], [f"{n}-rainbow-172"], [f"{n}-constant"])
            for n in ("moe", "mamba")
        ],
        "optimizers": [
            Contrast(f"{label} / AdamW", both, [n], [ADAMW]) for n, label in OPTIMIZERS.items()
        ],
    }
    return {claim: [contrast] for claim, contrast in one.items()} | several


def rows(data: "Samples", claim: str) -> Iterator[Row]:
    """Yield the deployed ratios beside a claim."""
    for contrast in contrasts().get(claim, []):
        for quantizer in contrast.quantizers:
            says = f"perplexity under {quantizer}: {contrast.says}"
            yield Row(says, contrast.ratio(data, quantizer), deployed=True)
