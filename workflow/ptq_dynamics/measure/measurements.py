"""From raw results to the table of measurements: its schema, statistics and rows. Figures and
claims join raw results too, so that the losses of all blocks are at hand for paired differences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.measure import names
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.train.trajectory import Trajectory

Inputs = Mapping[str, Sequence[Manifest]]
Row = dict[str, Any]

# What tells one measurement from all others.
KEY = ["trajectory", "seed", "quantizer", "checkpoint_id", "task", "metric"]
COLUMNS = (
    *("trajectory", "family", "phase", "step", "tokens", "lr", "seed", "quantizer", "method"),
    *("bits", "group_size", "checkpoint_id", "task", "metric", "value", "stderr", "checkpoint"),
)
ORDER = ["trajectory", "seed", "method", "bits", "group_size", "quantizer", "step", *KEY[3:]]
WHOLE = dict.fromkeys(("step", "tokens", "seed", "bits", "group_size"), "Int64")
TEXT = dict.fromkeys(("checkpoint_id", "task", "checkpoint"), "string")


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean of values [n] and its standard error."""
    values = values.astype(np.float64)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def relative_increase(full: np.ndarray, quantized: np.ndarray) -> tuple[float, float]:
    """Quantization error CE(Ŵ)/CE(W) − 1 (section 2) from the losses of the same blocks [n], and
    its standard error to first order: that of the mean of (qᵢ − r fᵢ) / mean(f), r the ratio."""
    full, quantized = full.astype(np.float64), quantized.astype(np.float64)
    ratio = quantized.mean() / full.mean()
    _, error = mean_and_error((quantized - ratio * full) / full.mean())
    return float(ratio - 1), error


def degradation(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """(Acc(W) − Acc(Ŵ)) / (1 − Acc(W)) of the mean accuracy over some tasks, from the outcomes in
    full precision and quantized of each task's documents, [n] each, 1 where right; and its paired
    standard error to first order. Without anything wrong in full precision it is not defined: nan.
    """
    full = float(np.mean([before.mean(dtype=np.float64) for before, _ in pairs]))
    quantized = float(np.mean([after.mean(dtype=np.float64) for _, after in pairs]))
    if full == 1:
        return float("nan"), float("nan")
    ratio = (1 - quantized) / (1 - full)
    _, error = mean_over_tasks(
        [mean_and_error((ratio * before - after) / (1 - full)) for before, after in pairs]
    )
    return ratio - 1, error


def mean_over_tasks(found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Unweighted mean of values of several tasks, each with its standard error, and the error of
    the mean: tasks have documents of their own."""
    values, errors = np.asarray(found, dtype=np.float64).T
    return float(values.mean()), float(np.sqrt((errors**2).sum()) / len(errors))


def table(rows: Iterable[Row]) -> pd.DataFrame:
    """Rows as a table with the schema's columns, in the schema's order."""
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(WHOLE | TEXT).sort_values(ORDER, kind="stable", ignore_index=True)


def read(path: Path, types: Any = WHOLE | TEXT) -> pd.DataFrame:
    """A table, of measurements unless told, exactly as it was; only what is empty is missing, so
    that `null` and `0360` can be ids of checkpoints."""
    return pd.read_csv(path, dtype=types, keep_default_na=False, na_values=[""])


def in_full_precision(series: Series) -> Series:
    """The series of the same trajectory that is not quantized."""
    fp = names.FULL_PRECISION
    return replace(series, quantizer=fp, method=fp, bits=None, group_size=None)


def join(series: Iterable[Series], inputs: Inputs) -> pd.DataFrame:
    """The measurements of all series, from the inputs under their labels (`Series.label`); the
    full-precision losses that a quantized series is paired with are among the inputs too."""
    return table(row for one in series for row in _rows(one, inputs))


def block_losses(series: Series, inputs: Inputs) -> dict[str, np.ndarray]:
    """Loss of every validation block, float32 [blocks], by checkpoint id."""
    return _arrays(series, names.LOSSES, inputs)


def _arrays(series: Series, file: str, inputs: Inputs) -> dict[str, np.ndarray]:
    found = dict[str, np.ndarray]()
    for manifest in manifests_of(series, inputs):
        found |= load_file(manifest.file(file))
    return found


def manifests_of(series: Series, inputs: Inputs) -> Sequence[Manifest]:
    """The manifests of what was measured of a series, one a shard."""
    return inputs.get(series.label(names.MEASURED), ())


def tasks(series: Series, inputs: Inputs) -> dict[str, bool]:
    """Names of the tasks that a series is measured on, and whether they count in the mean; first
    those that do."""
    found = {name for manifest in manifests_of(series, inputs) for name in manifest.facts["tasks"]}
    counts = {name: f"{names.BESIDE} {name}" not in inputs for name in sorted(found)}
    return dict(sorted(counts.items(), key=lambda each: not each[1]))


def chances(inputs: Inputs) -> dict[str, float]:
    """What guessing reaches on every task, and in the mean over those that count."""
    found = dict[str, float]()
    for label in sorted(inputs):
        for manifest in inputs[label] if label.startswith(f"{names.MEASURED} ") else ():
            found |= {name: each["chance"] for name, each in manifest.facts["tasks"].items()}
    counted = [found[name] for name in sorted(found) if f"{names.BESIDE} {name}" not in inputs]
    return found | ({names.MEAN: float(np.mean(counted))} if counted else {})


def outcomes(series: Series, task: str, inputs: Inputs) -> dict[str, np.ndarray]:
    """Outcome of every document of a task, 1 where right, float32 [documents], by checkpoint id."""
    every = _arrays(series, names.OUTCOMES, inputs).items()
    return {key.split("/", 1)[1]: right for key, right in every if key.startswith(f"{task}/")}


def _rows(series: Series, inputs: Inputs) -> Iterator[Row]:
    whole = manifests_of(series, inputs)
    found = (_losses(series, inputs), _of_manifests(whole), _accuracies(series, inputs))
    yield from _placed(series, whole, chain(*found))
    for probe in names.PROBES:
        for manifest in inputs.get(series.label(probe), ()):
            values = read(manifest.file(names.VALUES), TEXT)
            yield from _placed(series, [manifest], values.to_dict("records"))


def _placed(series: Series, manifests: Sequence[Manifest], found: Iterable[Any]) -> Iterator[Row]:
    """Values of checkpoints as rows that say what was measured."""
    places: dict[str, Row] = {each.id: asdict(each) for each in Trajectory(manifests).checkpoints}
    digests = {id_: digest for each in manifests for id_, digest in each.facts["digests"].items()}
    for measured in found:
        name = measured[names.CHECKPOINT]
        yield {**asdict(series), **places[name], "checkpoint": digests[name], **measured}


def _value(checkpoint: str, metric: str, found: Any, task: str | None = None) -> Row:
    measured = {names.CHECKPOINT: checkpoint, names.TASK: task, names.METRIC: metric}
    return measured | dict(zip((names.VALUE, names.ERROR), found, strict=True))


def _losses(series: Series, inputs: Inputs) -> Iterator[Row]:
    full = block_losses(in_full_precision(series), inputs)
    for name, found in block_losses(series, inputs).items():
        yield _value(name, names.LOSS, mean_and_error(found))
        if series.quantizer != names.FULL_PRECISION:
            before, after = full[name].astype(np.float64), found.astype(np.float64)
            yield _value(name, names.INCREASE, mean_and_error(after - before))
            yield _value(name, names.QUANTIZATION_ERROR, relative_increase(before, after))


def _of_manifests(manifests: Sequence[Manifest]) -> Iterator[Row]:
    """Mean over layers of the errors of every checkpoint; what a run's last blocks carry."""
    for manifest in manifests:
        found = dict(manifest.facts.get("carried", {}))
        if names.LAYERS in manifest.files:
            layers = read(manifest.file(names.LAYERS), TEXT).groupby(names.CHECKPOINT)
            found |= layers[[*names.LAYER_METRICS]].mean().to_dict("index")
        for name, numbers in found.items():
            for metric, value in numbers.items():
                yield _value(name, metric, (value, None))


def _accuracies(series: Series, inputs: Inputs) -> Iterator[Row]:
    """A value for every checkpoint, task and metric, and one for the mean over the tasks."""
    counted, fp = tasks(series, inputs), in_full_precision(series)
    full, right = ({task: outcomes(one, task, inputs) for task in counted} for one in (fp, series))
    inside = [task for task, counts in counted.items() if counts]
    for name in right[inside[0]] if inside else ():
        scores = {task: mean_and_error(right[task][name]) for task in counted}
        mean = mean_over_tasks([scores[task] for task in inside])
        for task, found in {**scores, names.MEAN: mean}.items():
            yield _value(name, names.ACCURACY, found, task)
        if series.quantizer != names.FULL_PRECISION:
            for task, group in ({task: [task] for task in counted} | {names.MEAN: inside}).items():
                found = degradation([(full[each][name], right[each][name]) for each in group])
                yield _value(name, names.DEGRADATION, found, task)
