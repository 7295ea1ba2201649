"""Rank correlation, which figures draw and claims read."""

import numpy as np


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's ρ of two samples [n]: Pearson's of the ranks."""
    one, other = (ranks - ranks.mean() for ranks in (_ranks(x), _ranks(y)))
    scale = np.sqrt((one**2).sum() * (other**2).sum())
    return float((one * other).sum() / scale) if scale else np.nan


def _ranks(x: np.ndarray) -> np.ndarray:
    # As scipy's rankdata, in a quarter of the time: resampling asks for tens of thousands.
    _, places, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[places]
