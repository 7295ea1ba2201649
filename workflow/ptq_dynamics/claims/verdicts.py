"""How verdicts come about, from an effect in the claimed direction and its error alone.

The rule was set before any result was looked at, and no claim has one of its own. That nothing is
concluded where no error is known was added later.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from ptq_dynamics.claims.estimates import Estimate, mean

# Standard errors that an effect has to have to be seen.
SEEN = 2.0


class Verdict(StrEnum):
    """What a build says of an inequality, or of a claim; of several, the first outweighs others."""

    NOT_REPRODUCED = "not reproduced"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not measured"
    REPRODUCED = "reproduced"


@dataclass(frozen=True)
class Effect:
    """How far an inequality holds: the mean over seeds of the effect in the claimed direction; its
    paired standard error; the standard deviation of the seeds' effects, where there are several."""

    value: float
    stderr: float
    spread: float | None

    @property
    def error(self) -> float | None:
        """The larger of the two errors; None where none is known: one seed, and nothing paired."""
        if self.spread is None:
            return self.stderr if self.stderr != 0 else None
        return max(self.stderr, self.spread)

    @property
    def smallest(self) -> float | None:
        """The smallest effect that this build could have seen, where that is known."""
        return None if self.error is None else SEEN * self.error


def over_seeds(effects: Sequence[Estimate]) -> Effect:
    """An effect from that of every seed. Seeds are validated on the same text, so that what they
    owe to it does not shrink with their number.

    The spread is that of seeds, not of their mean: the question is what one more seed would show,
    and of two or three seeds the error of their mean is known too badly to be trusted.
    """
    together = mean(effects)
    values = [each.value for each in effects]
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Effect(together.value, together.stderr, spread)


def of_inequality(effect: Effect) -> Verdict:
    """Reproduced where the effect is more than two errors in the claimed direction, not reproduced
    where it is as much in the other one, else inconclusive, as where no error is known; not
    measured where there is no effect."""
    if not math.isfinite(effect.value):
        return Verdict.NOT_MEASURED
    if effect.smallest is None:
        return Verdict.INCONCLUSIVE
    if not math.isfinite(effect.smallest):
        return Verdict.NOT_MEASURED
    if effect.value > effect.smallest:
        return Verdict.REPRODUCED
    return Verdict.NOT_REPRODUCED if effect.value < -effect.smallest else Verdict.INCONCLUSIVE


def of_claim(verdicts: Iterable[Verdict]) -> Verdict:
    """Of a claim by its inequalities: not reproduced where one is contradicted, reproduced where
    all are; of others, one that is open outweighs one that is not measured."""
    return min(verdicts, key=[*Verdict].index, default=Verdict.NOT_MEASURED)


def relation(one: Mapping[str, Any]) -> str:
    """What an inequality of claims.json asks of its sides."""
    times = "" if one["times"] == 1 else f"{one['times']:g} × "
    within = f", within {100 * one['tolerance']:g} %" if one["tolerance"] else ""
    return f"left {one['is']} {times}right{within}"
