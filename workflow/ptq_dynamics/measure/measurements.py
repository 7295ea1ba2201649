"""The schema of measurements, and the statistics behind them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ptq_dynamics.jobs.manifest import Manifest
from ptq_dynamics.trajectories import trajectory
from ptq_dynamics.trajectories.trajectory import Checkpoint

COLUMNS = (
    "trajectory",
    "family",
    "phase",
    "step",
    "tokens",
    "lr",
    "seed",
    "method",
    "bits",
    "group_size",
    "metric",
    "value",
    "stderr",
    "checkpoint",
)
FILE = "measurements.csv"
KEY = ["trajectory", "method", "bits", "group_size", "step", "metric"]


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean of values [n] and its standard error."""
    values = values.astype(np.float64)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def increase(full: np.ndarray, quantized: np.ndarray) -> tuple[float, float]:
    """CE(Ŵ) − CE(W) from the losses of the same blocks [n], and its paired standard error."""
    return mean_and_error(quantized.astype(np.float64) - full.astype(np.float64))


def relative_increase(full: np.ndarray, quantized: np.ndarray) -> tuple[float, float]:
    """Quantization error CE(Ŵ)/CE(W) − 1 (section 2) from the losses of the same blocks [n], and
    its standard error to first order: that of the mean of (qᵢ − r fᵢ) / mean(f), r the ratio."""
    full, quantized = full.astype(np.float64), quantized.astype(np.float64)
    ratio = quantized.mean() / full.mean()
    _, error = mean_and_error((quantized - ratio * full) / full.mean())
    return float(ratio - 1), error


def row(
    columns: Mapping[str, Any], source: Manifest, checkpoint: Checkpoint, digest: str | None = None
) -> dict[str, Any]:
    """The columns of a row that say what was measured; `columns` has trajectory, family, method,
    bits and group_size, `digest` that of the weights if it is not the checkpoint's in `source`."""
    return {
        **columns,
        "phase": checkpoint.phase,
        "step": checkpoint.step,
        "tokens": checkpoint.tokens,
        "lr": checkpoint.lr,
        "seed": source.facts["seed"],
        "checkpoint": digest or trajectory.digest(source, checkpoint),
    }


def table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a table with the schema's columns, in the schema's order."""
    frame = pd.DataFrame([dict(row) for row in rows], columns=list(COLUMNS))
    return frame.astype({"bits": "Int64", "group_size": "Int64", "seed": "Int64"}).sort_values(
        KEY, kind="stable", ignore_index=True
    )


def write(frame: pd.DataFrame, path: Path) -> None:
    """Write a table of measurements; `read` gives it back exactly."""
    frame.to_csv(path, index=False, lineterminator="\n")


def read(paths: Iterable[Path]) -> pd.DataFrame:
    """All measurements of several files as one table."""
    types = {"bits": "Int64", "group_size": "Int64", "seed": "Int64", "checkpoint": "string"}
    frames = [pd.read_csv(path, dtype=types) for path in paths]
    return pd.concat(frames, ignore_index=True)
