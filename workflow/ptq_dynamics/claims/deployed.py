"""What a user gets, beside claims about errors: ratios of perplexities after quantization."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ptq_dynamics.claims.beyond import ADAMW, COOLED, EXPONENTIAL, FLAT, NEWER, OPTIMIZERS
from ptq_dynamics.claims.controlled import BITS, LATER, Q3, Q4, RATES, STABLE
from ptq_dynamics.claims.definitions import Row
from ptq_dynamics.claims.public import SIZES, ingredients
from ptq_dynamics.measure.names import LOSS

if TYPE_CHECKING:
    from ptq_dynamics.claims.samples import Samples

DECAY = "ends of cooldowns / stable run, at equal tokens"


class Contrast(NamedTuple):
    """Geometric mean perplexities at the ends of runs, divided by those of the runs `under`: at a
    share of the tokens of each, or without a share where each run `above` ends."""

    says: str
    quantizers: Sequence[str]
    above: Sequence[str]
    under: Sequence[str]
    share: float | None = 1.0

    def ratio(self, data: "Samples", quantizer: str) -> np.ndarray:
        """Return the ratio under a quantizer."""
        above = [data.end(name, quantizer, LOSS) for name in self.above]
        if self.share is None:
            (run,) = self.under
            under = [data.at(run, quantizer, LOSS, end_of=name) for name in self.above]
        else:
            under = [data.at(name, quantizer, LOSS, share=self.share) for name in self.under]
        return np.asarray(np.exp(np.mean(above, axis=0) - np.mean(under, axis=0)))


def decay(says: str, quantizers: Sequence[str], *runs: str) -> Contrast:
    """Return the contrast of the ends of decays with their beginnings."""
    return Contrast(f"{says}end of decay / its beginning", quantizers, runs, runs, 0.0)


BOTH = (*BITS,)
CONTRASTS: dict[str, list[Contrast]] = {
    "rise-in-decay": [Contrast(DECAY, [Q4], LATER, [STABLE], None)],
    "budget-independence": [
        Contrast("ends at 82B and 100B / at 28B and 46B tokens", [Q4], LATER[-2:], LATER[:2])
    ],
    "constant-rate": [Contrast("end / 10 % of the tokens", [Q4], [STABLE], [STABLE], 0.1)],
    "other-quantizers": [Contrast(DECAY, ["awq-4bit"], LATER, [STABLE], None)],
    "peak-rate": [
        Contrast("rate 3e-3 / 3e-4", BOTH, [RATES[2]], [RATES[0]]),
        Contrast("rate 1e-2 / 3e-3", BOTH, [RATES[3]], [RATES[2]]),
    ],
    "unstable-rates": [Contrast("rate 3e-2 / 1e-2", BOTH, ["wsd-3e-2"], ["wsd-1e-2"])],
    "kumar": [
        Contrast(
            "160M, longest budget: cosine / WSD",
            [Q3],
            ["kumar-160m-cosine-99.5-to-0"],
            ["kumar-160m-wsd-89.5"],
        )
    ],
    "cosine": [
        Contrast("rate 3e-3 / 6e-4, 190k steps", [Q4], ["cosine-190-3e-3"], ["cosine-190-6e-4"])
    ],
    "weight-decay": [
        Contrast("λ 0.01 / 0.001", BOTH, ["decay-lambda-0.01"], ["decay-lambda-0.001"])
    ],
    "adamc": [Contrast("AdamC / AdamW", [Q4], ["adamc-3e-3"], ["wsd-3e-3"])],
    "smollm3": [decay("", BOTH, "smollm3-decay")],
    "olmo2": [
        Contrast(
            f"{size.upper()}, ends of stage 2 / end of stage 1",
            [Q3],
            ingredients(size),
            [f"olmo2-{size}"],
        )
        for size in SIZES
    ],
    "apertus-and-amber": [decay("Apertus, ", BOTH, "apertus-decay")],
    "opensci": [decay("both sizes, ", [Q4], "opensci-1.3b-decay", "opensci-1.7b-decay")],
    "rate-of-7b": [
        Contrast(
            "rate 1.2e-3 / 3e-4", BOTH, ["olmo2-7b-lr-12e-4-decay"], ["olmo2-7b-lr-3e-4-decay"]
        )
    ],
    "flat-objectives": [Contrast("mean of five objectives / plain loss", [Q3], FLAT, [ADAMW])],
    "architectures": [
        Contrast(f"{n}, last cooldown / stable run", [Q4], [f"{n}-rainbow-172"], [f"{n}-constant"])
        for n in ("moe", "mamba")
    ],
    "optimizers": [
        Contrast(f"{label} / AdamW", BOTH, [name], [ADAMW]) for name, label in OPTIMIZERS.items()
    ],
    "decay-length": [Contrast("decay over 40 % / 5 %", BOTH, ["cooldown-40"], ["cooldown-5"])],
    "averages": [
        Contrast("LAWA and exponential / decayed run", BOTH, ("lawa-20", *EXPONENTIAL), [ADAMW])
    ],
    "newer-quantizers": [Contrast(DECAY, NEWER, COOLED, [STABLE], None)],
}


def rows(data: "Samples", claim: str) -> Iterator[Row]:
    """Yield the deployed ratios beside a claim."""
    for contrast in CONTRASTS.get(claim, []):
        for quantizer in contrast.quantizers:
            says = f"perplexity under {quantizer}: {contrast.says}"
            yield Row(says, contrast.ratio(data, quantizer), deployed=True)
