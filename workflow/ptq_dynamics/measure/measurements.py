"""The table of all measurements of a scale: its schema, statistics and rows from raw results."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

from ptq_dynamics.base import needs
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.measure import names
from ptq_dynamics.measure.series import CollectSettings, Series
from ptq_dynamics.trajectories.trajectory import Trajectory

Inputs = Mapping[str, Sequence[Manifest]]
K = TypeVar("K")
Row = dict[str, Any]  # every column has its own type

# The columns that identify a measurement.
KEY = ["trajectory", "seed", "quantizer", "checkpoint_id", "task", "metric"]
COLUMNS = (
    *("trajectory", "family", "phase", "step", "tokens", "lr", "seed", "quantizer", "method"),
    *("bits", "group_size", "checkpoint_id", "task", "metric", "value", "stderr", "checkpoint"),
)
ORDER = ["trajectory", "seed", "method", "bits", "group_size", "quantizer", "step", *KEY[3:]]
WHOLE = dict.fromkeys(("step", "tokens", "seed", "bits", "group_size"), "Int64")
TEXT = dict.fromkeys(("checkpoint_id", "task", "checkpoint"), "string")


def run(context: Context[CollectSettings]) -> Mapping[str, object]:
    """Write measurements.csv from the raw results of every series."""
    frame = join(context.settings.series, context.inputs)
    frame.to_csv(context.out / names.MEASUREMENTS, index=False)
    return {"rows": len(frame)}


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Return the mean of values [n] and its standard error."""
    values = values.astype(np.float64)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def relative_increase(full: np.ndarray, quantized: np.ndarray) -> tuple[float, float]:
    """Return the quantization error CE(Ŵ)/CE(W) − 1 (section 2) from losses of blocks [n].

    Its standard error is, to first order, that of the mean of (qᵢ − r fᵢ) / mean(f), with the
    ratio r."""
    full, quantized = full.astype(np.float64), quantized.astype(np.float64)
    ratio = quantized.mean() / full.mean()
    _, error = mean_and_error((quantized - ratio * full) / full.mean())
    return float(ratio - 1), error


def degradation(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """Return (Acc(W) − Acc(Ŵ)) / (1 − Acc(W)) of the mean accuracy over tasks, and its paired
    standard error to first order; both are NaN if Acc(W) is 1.

    A pair has the outcomes of a task's documents [n] in full precision and quantized."""
    full = float(np.mean([before.mean(dtype=np.float64) for before, _ in pairs]))
    quantized = float(np.mean([after.mean(dtype=np.float64) for _, after in pairs]))
    if full == 1:
        return float("nan"), float("nan")
    ratio = (1 - quantized) / (1 - full)
    _, error = mean_over_tasks(
        [mean_and_error((ratio * before - after) / (1 - full)) for before, after in pairs]
    )
    return ratio - 1, error


def mean_over_tasks(scores: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean of independent values with standard errors, and the mean's error."""
    values, errors = np.asarray(scores, dtype=np.float64).T
    return float(values.mean()), float(np.sqrt((errors**2).sum()) / len(errors))


def as_table(rows: Iterable[Row]) -> pd.DataFrame:
    """Return rows as a table with the schema's columns and order."""
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(WHOLE | TEXT).sort_values(ORDER, kind="stable", ignore_index=True)


def read_table(path: Path, types: Mapping[str, str] = WHOLE | TEXT) -> pd.DataFrame:
    """Read a table exactly; ids such as `null` and `0360` stay text."""
    return pd.read_csv(path, dtype=types, keep_default_na=False, na_values=[""])


def in_full_precision(series: Series) -> Series:
    """Return the full-precision series of the same trajectory."""
    fp = names.FULL_PRECISION
    return replace(series, quantizer=fp, method=fp, bits=None, group_size=None)


def join(series: Iterable[Series], inputs: Inputs) -> pd.DataFrame:
    """Return the measurements of all series; `inputs` also has their full-precision series."""
    kinds = dict.fromkeys(map(needs.kind_of, inputs))
    return as_table(row for one in series for row in _rows(one, inputs, kinds))


def losses_of_blocks(series: Series, inputs: Inputs) -> dict[str, np.ndarray]:
    """Return the loss of every validation block, float32 [blocks], by checkpoint id."""
    return _arrays(series, names.LOSSES, inputs)


def contributions(metric: names.Paired, series: Series, inputs: Inputs) -> dict[str, np.ndarray]:
    """Return the values of blocks whose mean is the metric, float64 [blocks], by checkpoint."""
    values, losses = dict[str, np.ndarray](), losses_of_blocks(series, inputs)
    before = losses if metric == names.LOSS else losses_of_blocks(in_full_precision(series), inputs)
    for name, own in losses.items():
        full, after = before[name].astype(np.float64), own.astype(np.float64)
        values[name] = after if metric == names.LOSS else after - full
        if metric == names.QUANTIZATION_ERROR:
            # To first order, see `relative_increase`.
            ratio = after.mean() / full.mean()
            values[name] = (after - ratio * full) / full.mean() + ratio - 1
    return values


def errors_of_comparison(blocks: Mapping[K, np.ndarray]) -> dict[K, float]:
    """Return standard errors of means over blocks [n], without variation that checkpoints share.

    Equally many blocks are the same text. Each error is at most the mean's own standard error.

    Source: Cousineau (2005), with the correction of Morey (2008), for designs within subjects. The
    shared variation is a median, because errors in one figure may differ by orders of magnitude.
    """
    errors: dict[K, float] = {}
    for size in dict.fromkeys(map(len, blocks.values())):
        alike = {key: values for key, values in blocks.items() if len(values) == size}
        table = np.stack([*alike.values()])
        root = np.sqrt(size)
        own = table.std(axis=1, ddof=1) / root
        count, finite = len(table), np.isfinite(own)
        if finite.sum() > 1:
            # Levels differ more than blocks, so the median is taken of differences from the mean.
            rest = table - table.mean(axis=1, keepdims=True)
            rest = rest - np.median(rest[finite], axis=0)
            own = np.fmin(own, rest.std(axis=1, ddof=1) / root * np.sqrt(count / (count - 1)))
        errors |= dict(zip(alike, own.tolist(), strict=True))
    return errors


def _arrays(series: Series, file: str, inputs: Inputs) -> dict[str, np.ndarray]:
    arrays = dict[str, np.ndarray]()
    for manifest in manifests_of(series, inputs):
        arrays |= load_file(manifest.file(file))
    return arrays


def manifests_of(series: Series, inputs: Inputs) -> Sequence[Manifest]:
    """Return the manifests of a series' measurements, one for each shard."""
    return inputs.get(series.label(), ())


def tasks(series: Series, inputs: Inputs) -> dict[str, bool]:
    """Return for each task of a series whether it counts in the mean; these tasks come first."""
    measured = {
        name for manifest in manifests_of(series, inputs) for name in manifest.facts["tasks"]
    }
    counts = {name: needs.beside_mean(name) not in inputs for name in sorted(measured)}
    return dict(sorted(counts.items(), key=lambda item: not item[1]))


def chances(inputs: Inputs) -> dict[str, float]:
    """Return the chance accuracy of every task, and its mean over the tasks that count."""
    accuracies = dict[str, float]()
    for label in sorted(inputs):
        for manifest in inputs[label] if needs.kind_of(label) == needs.MEASURE else ():
            accuracies |= {name: facts["chance"] for name, facts in manifest.facts["tasks"].items()}
    counted = [
        accuracies[name] for name in sorted(accuracies) if needs.beside_mean(name) not in inputs
    ]
    return accuracies | ({names.MEAN: float(np.mean(counted))} if counted else {})


def outcomes(series: Series, task: str, inputs: Inputs) -> dict[str, np.ndarray]:
    """Return the outcomes of a task, 0 or 1, float32 [documents], by checkpoint id."""
    every = _arrays(series, names.OUTCOMES, inputs).items()
    return {key.split("/", 1)[1]: right for key, right in every if key.startswith(f"{task}/")}


def _rows(series: Series, inputs: Inputs, kinds: Iterable[str]) -> Iterator[Row]:
    manifests = manifests_of(series, inputs)
    rows = (_loss_rows(series, inputs), _of_manifests(manifests), _accuracy_rows(series, inputs))
    yield from _placed(series, manifests, chain(*rows))
    for manifest in chain(*(inputs.get(series.label(kind), ()) for kind in kinds)):
        if names.VALUES in manifest.files:
            values = read_table(manifest.file(names.VALUES), TEXT)
            yield from _placed(series, [manifest], cast("list[Row]", values.to_dict("records")))


def _placed(series: Series, manifests: Sequence[Manifest], values: Iterable[Row]) -> Iterator[Row]:
    """Return values of checkpoints as rows of the table."""
    checkpoints = series.places or Trajectory(manifests).checkpoints
    places: dict[str, Row] = {c.id: asdict(c) for c in checkpoints}
    digests = {
        id_: digest for manifest in manifests for id_, digest in manifest.facts["digests"].items()
    }
    for measured in values:
        name = measured[names.CHECKPOINT_ID]
        yield {**vars(series), **places[name], "checkpoint": digests[name], **measured}


def _value(
    checkpoint: str, metric: str, estimate: tuple[float, float | None], task: str | None = None
) -> Row:
    measured = {names.CHECKPOINT_ID: checkpoint, names.TASK: task, names.METRIC: metric}
    return measured | dict(zip((names.VALUE, names.ERROR), estimate, strict=True))


def _loss_rows(series: Series, inputs: Inputs) -> Iterator[Row]:
    full = losses_of_blocks(in_full_precision(series), inputs)
    for name, losses in losses_of_blocks(series, inputs).items():
        yield _value(name, names.LOSS, mean_and_error(losses))
        if series.quantizer != names.FULL_PRECISION:
            before, after = full[name].astype(np.float64), losses.astype(np.float64)
            yield _value(name, names.INCREASE, mean_and_error(after - before))
            yield _value(name, names.QUANTIZATION_ERROR, relative_increase(before, after))


def _of_manifests(manifests: Sequence[Manifest]) -> Iterator[Row]:
    """Return the mean errors over layers, and the loss that blocks carry."""
    for manifest in manifests:
        means = dict(manifest.facts.get("carried", {}))
        if names.LAYERS in manifest.files:
            layers = read_table(manifest.file(names.LAYERS), TEXT).groupby(names.CHECKPOINT_ID)
            means |= layers[[*names.LAYER_METRICS]].mean().to_dict("index")
        for name, numbers in means.items():
            for metric, value in numbers.items():
                yield _value(name, metric, (value, None))


def _accuracy_rows(series: Series, inputs: Inputs) -> Iterator[Row]:
    """Return values by checkpoint, task and metric, and of the mean over tasks."""
    counted, fp = tasks(series, inputs), in_full_precision(series)
    full, right = ({task: outcomes(one, task, inputs) for task in counted} for one in (fp, series))
    inside = [task for task, counts in counted.items() if counts]
    for name in right[inside[0]] if inside else ():
        scores = {task: mean_and_error(right[task][name]) for task in counted}
        mean = mean_over_tasks([scores[task] for task in inside])
        for task, score in {**scores, names.MEAN: mean}.items():
            yield _value(name, names.ACCURACY, score, task)
        if series.quantizer != names.FULL_PRECISION:
            for task, group in ({task: [task] for task in counted} | {names.MEAN: inside}).items():
                drop = degradation([(full[t][name], right[t][name]) for t in group])
                yield _value(name, names.DEGRADATION, drop, task)
