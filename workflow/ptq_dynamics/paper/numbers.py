"""Numbers as the text has them."""

import math
import re

from ptq_dynamics.claims.formats import with_error

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
POWER = re.compile(r"(?<=[\d)])e([+-]?)0*(\d+)\b")


def shown(value: float | None, error: float | None = None) -> str:
    """A number with its error; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return powers(with_error(value, error)).replace("-", "−")


def powers(text: str) -> str:
    """Powers of ten as such: (1.2 ± 0.3)e-4 as (1.2 ± 0.3)·10⁻⁴."""
    return POWER.sub(
        lambda at: "·10" + f"{at[1].replace('+', '')}{at[2]}".translate(SUPERSCRIPT), text
    )


def whole(number: int) -> str:
    """A whole number with its thousands set apart."""
    return f"{number:,}"


def short(value: float | None) -> str:
    """A number to three digits; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return powers(f"{value:.3g}").replace("-", "−")
