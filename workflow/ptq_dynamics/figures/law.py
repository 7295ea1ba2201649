"""Laws of the quantization error: its logarithm as a linear function of a checkpoint's features."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

SMALLEST = 1e-5  # smaller errors, also negative ones from noise, count as this
EARLY = 0.1  # points before this share of the largest token count are left out
# Features by law. Laws of tokens, at one size: Kumar et al. (arXiv 2411.04330), and Ouyang et al.
# (2411.17691). The law of loss follows arXiv 2604.15167: errors rise once the loss converges.
LAWS = {"tokens": ("tokens",), "loss": ("loss",), "schedule": ("tokens", "peak", "decayed")}
WORDS = {"tokens": "tokens", "loss": "the loss", "schedule": "tokens, rate, decay"}


def features(table: pd.DataFrame) -> pd.DataFrame:
    """Return log tokens, loss in nats, log peak rate, and the decayed share of this rate. `table`
    has columns tokens, loss, lr and peak."""
    return pd.DataFrame(
        {
            "tokens": np.log10(table.tokens.astype(float)),
            "loss": table.loss,
            "peak": np.log10(table.peak),
            "decayed": 1 - table.lr / table.peak,
        }
    )


def held_out(
    table: pd.DataFrame, law: str, groups: Sequence[str] | np.ndarray, errors: np.ndarray
) -> np.ndarray:
    """Return the errors [points, ...] that a law predicts for each group after a fit by least
    squares to the logarithms of all other groups."""
    x = np.column_stack([np.ones(len(table)), table[[*LAWS[law]]]])
    y, owner = np.log10(np.maximum(errors, SMALLEST)), np.asarray(groups)
    out = np.empty_like(y)
    for group in np.unique(owner):
        own = owner == group
        out[own] = x[own] @ (np.linalg.pinv(x[~own]) @ y[~own])
    return np.asarray(10**out)


def off(predicted: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return by what factor predictions are off: 10 to the root mean square of logarithms."""
    logs = np.log10(predicted) - np.log10(np.maximum(errors, SMALLEST))
    return np.asarray(10 ** (logs**2).mean(axis=0) ** 0.5)
