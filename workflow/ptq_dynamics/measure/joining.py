"""From raw results to measurements: losses of blocks, errors of layers and values of probes, joined
into the rows of one table.

Whoever draws or compares measurements joins them from the raw results, so that the losses of all
blocks are at hand for paired differences, and no job does nothing but join.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from safetensors import safe_open
from safetensors.numpy import load_file

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import (
    ACCURACY,
    BESIDE,
    CHECKPOINT,
    DEGRADATION,
    ERROR,
    FULL_PRECISION,
    INCREASE,
    LAYER_METRICS,
    LAYERS,
    LOSS,
    LOSSES,
    MEAN,
    MEASURED,
    METRIC,
    OUTCOMES,
    PROBES,
    QUANTIZATION_ERROR,
    TASK,
    VALUE,
    VALUES,
)
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.train.trajectory import Trajectory

Inputs = Mapping[str, Sequence[Manifest]]


def in_full_precision(series: Series) -> Series:
    """The series of the same trajectory that is not quantized."""
    fp = FULL_PRECISION
    return replace(series, quantizer=fp, method=fp, bits=None, group_size=None)


def join(series: Iterable[Series], inputs: Inputs) -> pd.DataFrame:
    """The measurements of all series, from the inputs under their labels (`Series.label`); the
    full-precision losses that a quantized series is paired with are among the inputs too."""
    return measurements.table(row for one in series for row in _rows(one, inputs))


def block_losses(series: Series, inputs: Inputs) -> dict[str, np.ndarray]:
    """Loss of every validation block, float32 [blocks], by checkpoint id."""
    losses: dict[str, np.ndarray] = {}
    for manifest in manifests_of(series, inputs):
        losses |= load_file(manifest.file(LOSSES))
    return losses


def manifests_of(series: Series, inputs: Inputs) -> Sequence[Manifest]:
    """The manifests of what was measured of a series, one a shard."""
    return inputs.get(series.label(MEASURED), ())


def _rows(series: Series, inputs: Inputs) -> Iterator[dict[str, Any]]:
    losses, layers = block_losses(series, inputs), _layer_errors(series, inputs)
    quantized = series.quantizer != FULL_PRECISION
    full = block_losses(in_full_precision(series), inputs) if quantized else {}
    for manifest in manifests_of(series, inputs):
        for checkpoint in Trajectory([manifest]).checkpoints:
            found = losses[checkpoint.id]
            metrics: dict[str, tuple[float, float | None]] = {
                LOSS: measurements.mean_and_error(found)
            }
            if quantized:
                before = full[checkpoint.id]
                metrics[INCREASE] = measurements.increase(before, found)
                metrics[QUANTIZATION_ERROR] = measurements.relative_increase(before, found)
            if layers is not None:
                errors: Any = layers.loc[checkpoint.id]
                metrics |= {name: (float(errors[name]), None) for name in LAYER_METRICS}
            digest = manifest.facts["digests"][checkpoint.id]
            for metric, (value, stderr) in metrics.items():
                measured = {METRIC: metric, VALUE: value, ERROR: stderr}
                yield measurements.row(series, checkpoint, digest) | measured
    for probe in PROBES:
        for manifest in inputs.get(series.label(probe), ()):
            yield from _probed(series, manifest)
    yield from _accuracies(series, inputs)


def tasks(series: Series, inputs: Inputs) -> dict[str, bool]:
    """Names of the tasks that a series is measured on, and whether they count in the mean; first
    those that do."""
    found = {name for manifest in manifests_of(series, inputs) for name in manifest.facts["tasks"]}
    counts = {name: f"{BESIDE} {name}" not in inputs for name in sorted(found)}
    return dict(sorted(counts.items(), key=lambda each: not each[1]))


def chances(inputs: Inputs) -> dict[str, float]:
    """What guessing reaches on every task, and in the mean over those that count."""
    found = dict[str, float]()
    for label in sorted(label for label in inputs if label.startswith(f"{MEASURED} ")):
        for manifest in inputs[label]:
            found |= {name: each["chance"] for name, each in manifest.facts["tasks"].items()}
    counted = [found[name] for name in sorted(found) if f"{BESIDE} {name}" not in inputs]
    return found | ({MEAN: float(np.mean(counted))} if counted else {})


def outcomes(series: Series, task: str, inputs: Inputs) -> dict[str, np.ndarray]:
    """Outcome of every document of a task, 1 where right, float32 [documents], by checkpoint id."""
    found, before = dict[str, np.ndarray](), f"{task}/"
    for manifest in manifests_of(series, inputs):
        with safe_open(manifest.file(OUTCOMES), framework="np") as file:
            names = [name for name in file.keys() if name.startswith(before)]  # noqa: SIM118
            found |= {name.removeprefix(before): file.get_tensor(name) for name in names}
    return found


def _accuracies(series: Series, inputs: Inputs) -> Iterator[dict[str, Any]]:
    """A row for every checkpoint, task and metric, and one for the mean over the tasks."""
    counted = tasks(series, inputs)
    if not counted:
        return
    quantized, fp = series.quantizer != FULL_PRECISION, in_full_precision(series)
    full = {task: outcomes(fp, task, inputs) for task in counted} if quantized else {}
    right = {task: outcomes(series, task, inputs) for task in counted}
    manifests = manifests_of(series, inputs)
    digests = {id_: d for manifest in manifests for id_, d in manifest.facts["digests"].items()}
    for checkpoint in Trajectory(manifests).checkpoints:
        name = checkpoint.id
        scores = {task: measurements.mean_and_error(right[task][name]) for task in counted}
        inside = [task for task, counts in counted.items() if counts]
        scores[MEAN] = measurements.mean_over_tasks([scores[task] for task in inside])
        metrics = {ACCURACY: scores}
        if quantized:
            pairs = {task: (full[task][name], right[task][name]) for task in counted}
            metrics[DEGRADATION] = {
                **{task: measurements.degradation([pair]) for task, pair in pairs.items()},
                MEAN: measurements.degradation([pairs[task] for task in inside]),
            }
        for metric, found in metrics.items():
            for task, (value, stderr) in found.items():
                measured = {TASK: task, METRIC: metric, VALUE: value, ERROR: stderr}
                yield measurements.row(series, checkpoint, digests[name]) | measured


def _probed(series: Series, manifest: Manifest) -> Iterator[dict[str, Any]]:
    checkpoints = {each.id: each for each in Trajectory([manifest]).checkpoints}
    values = measurements.read_csv(manifest.file(VALUES), measurements.TEXT)
    rows: list[Any] = values.to_dict("records")
    for measured in rows:
        name = measured.pop(CHECKPOINT)
        digest = manifest.facts["digests"][name]
        yield measurements.row(series, checkpoints[name], digest) | measured


def _layer_errors(series: Series, inputs: Inputs) -> pd.DataFrame | None:
    """Mean over layers of the errors of every checkpoint, by its id."""
    manifests = [each for each in manifests_of(series, inputs) if LAYERS in each.files]
    if not manifests:
        return None
    read, text = measurements.read_csv, measurements.TEXT
    frames = [read(manifest.file(LAYERS), text) for manifest in manifests]
    return pd.concat(frames).groupby(CHECKPOINT)[list(LAYER_METRICS)].mean()
