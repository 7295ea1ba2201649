"""The schema of measurements, and the statistics behind them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ptq_dynamics.measure.names import (
    CHECKPOINT,
    FULL_PRECISION,
    LOSS,
    METRIC,
    QUANTIZER,
    SEED,
    STEP,
    TASK,
    TOKENS,
    TRAJECTORY,
)

# What tells one measurement from all others.
KEY = [TRAJECTORY, SEED, QUANTIZER, CHECKPOINT, TASK, METRIC]
COLUMNS = (
    *(TRAJECTORY, "family", "phase", STEP, TOKENS, "lr", SEED, QUANTIZER, "method", "bits"),
    *("group_size", CHECKPOINT, TASK, METRIC, "value", "stderr", "checkpoint"),
)
ORDER = [TRAJECTORY, SEED, "method", "bits", "group_size", QUANTIZER, STEP, *KEY[3:]]
WHOLE = dict.fromkeys((STEP, TOKENS, SEED, "bits", "group_size"), "Int64")
TEXT = dict.fromkeys((CHECKPOINT, TASK, "checkpoint"), "string")


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


def degradation(tasks: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """(Acc(W) − Acc(Ŵ)) / (1 − Acc(W)) of the mean accuracy over some tasks, from the outcomes in
    full precision and quantized of each task's documents, [n] each, 1 where right; and its paired
    standard error to first order. Without anything wrong in full precision it is not defined: nan.
    """
    full = float(np.mean([before.mean(dtype=np.float64) for before, _ in tasks]))
    quantized = float(np.mean([after.mean(dtype=np.float64) for _, after in tasks]))
    if full == 1:
        return float("nan"), float("nan")
    ratio = (1 - quantized) / (1 - full)
    _, error = mean_over_tasks(
        [mean_and_error((ratio * before - after) / (1 - full)) for before, after in tasks]
    )
    return ratio - 1, error


def mean_over_tasks(found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Unweighted mean of values of several tasks, each with its standard error, and the error of
    the mean: tasks have documents of their own."""
    values, errors = np.asarray(found, dtype=np.float64).T
    return float(values.mean()), float(np.sqrt((errors**2).sum()) / len(errors))


def table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a table with the schema's columns, in the schema's order."""
    frame = pd.DataFrame([dict(row) for row in rows], columns=list(COLUMNS))
    return frame.astype(WHOLE | TEXT).sort_values(ORDER, kind="stable", ignore_index=True)


def read_csv(path: Path, types: Mapping[str, str]) -> pd.DataFrame:
    """A table from its file; only what is empty is missing, so that `null` and `0360` can be ids
    of checkpoints."""
    options: Any = {"dtype": types, "keep_default_na": False, "na_values": [""]}
    return pd.read_csv(path, **options)


def write(frame: pd.DataFrame, path: Path) -> None:
    """Write a table of measurements; `read` gives it back exactly."""
    frame.to_csv(path, index=False, lineterminator="\n")


def read(path: Path) -> pd.DataFrame:
    """A table of measurements from its file."""
    return read_csv(path, WHOLE | TEXT)


def full_precision_losses(frame: pd.DataFrame) -> dict[str, dict[int, float]]:
    """Loss in full precision by step, of every trajectory of a table at its first seed."""
    rows = frame[(frame.metric == LOSS) & (frame.quantizer == FULL_PRECISION)]
    rows = rows[rows.step.notna() & (rows.seed == rows.groupby(TRAJECTORY).seed.transform("min"))]
    return {
        str(name): dict(zip(part.step.tolist(), part.value.tolist(), strict=True))
        for name, part in rows.sort_values(STEP).groupby(TRAJECTORY)
    }
