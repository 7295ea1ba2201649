"""Names, labels and small types that figures share with those who plan, judge and publish them."""

import re
from dataclasses import dataclass

# The formats that a figure is drawn in, beside the table of what it draws.
PICTURES = ("pdf", "png")
TABLE = "csv"
# What a picture carries in its metadata: the scale, and the identity of what it is made from.
ORIGIN = "ptq-dynamics, {scale}: {identity}"
# A fact of a figure: a sentence on what its numbers say, which stands below its caption.
FINDING = "finding"
ALIKE = "≙"  # stands between a value here and the paper's
# A curve that is called so is that of another one, the first group, under a quantizer.
UNDER = re.compile(r"(.+) \(.+\)")
UNITS = {"T": 1e12, "B": 1e9, "M": 1e6, "k": 1e3}

# Of averages: trajectory, checkpoint id, and mean age of what is in it, in tokens before the end.
Ages = tuple[tuple[str, str, float], ...]


def in_group(label: str) -> tuple[str, str]:
    """Group and name of a curve that is named "GROUP: NAME"; no group, and its label, of others."""
    group, _, name = label.rpartition(": ")
    return group, name


def rounded(number: float) -> str:
    """A large number with a unit, to three digits: 162M, 99.6B."""
    for unit, size in UNITS.items():
        if number >= size / 10:
            return f"{number / size:.3g}{unit}" if number >= size else f"{number / size:.2f}{unit}"
    return f"{number:.0f}"


def short(number: float) -> str:
    """A number as runs are named by it: 3e-3, 1.5e-2."""
    digits, _, exponent = f"{number:.3e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


@dataclass(frozen=True)
class Shown:
    """A quantizer by the figure's name; the draws of its calibration set, if it is `calibrated`."""

    name: str
    draws: tuple[str, ...]
    method: str
    bits: int
    calibrated: bool

    @property
    def used(self) -> str:
        """The one this scale takes, with the first calibration set."""
        return self.draws[0]


@dataclass(frozen=True)
class ShownRun:
    """A run at one seed; a branch leaves its `trunk` at the step `at`; a miniature stands in for
    the public model `stands_for`."""

    label: str
    name: str
    seed: int
    trunk: str | None
    at: int | None
    stands_for: str | None
