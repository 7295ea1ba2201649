"""From raw results to measurements: losses of blocks, errors of layers and values of probes, joined
into the rows of one table.

Whoever draws or compares measurements joins them from the raw results, so that the losses of all
blocks are at hand for paired differences, and no job does nothing but join.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from safetensors import safe_open
from safetensors.numpy import load_file

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.measure import measurements, names
from ptq_dynamics.measure.names import BESIDE, CHECKPOINT, FULL_PRECISION, MEAN
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.train.trajectory import Trajectory

Inputs = Mapping[str, Sequence[Manifest]]
Row = dict[str, Any]


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
        losses |= load_file(manifest.file(names.LOSSES))
    return losses


def manifests_of(series: Series, inputs: Inputs) -> Sequence[Manifest]:
    """The manifests of what was measured of a series, one a shard."""
    return inputs.get(series.label(names.MEASURED), ())


def tasks(series: Series, inputs: Inputs) -> dict[str, bool]:
    """Names of the tasks that a series is measured on, and whether they count in the mean; first
    those that do."""
    found = {name for manifest in manifests_of(series, inputs) for name in manifest.facts["tasks"]}
    counts = {name: f"{BESIDE} {name}" not in inputs for name in sorted(found)}
    return dict(sorted(counts.items(), key=lambda each: not each[1]))


def chances(inputs: Inputs) -> dict[str, float]:
    """What guessing reaches on every task, and in the mean over those that count."""
    found = dict[str, float]()
    for label in sorted(label for label in inputs if label.startswith(f"{names.MEASURED} ")):
        for manifest in inputs[label]:
            found |= {name: each["chance"] for name, each in manifest.facts["tasks"].items()}
    counted = [found[name] for name in sorted(found) if f"{BESIDE} {name}" not in inputs]
    return found | ({MEAN: float(np.mean(counted))} if counted else {})


def outcomes(series: Series, task: str, inputs: Inputs) -> dict[str, np.ndarray]:
    """Outcome of every document of a task, 1 where right, float32 [documents], by checkpoint id."""
    found, before = dict[str, np.ndarray](), f"{task}/"
    for manifest in manifests_of(series, inputs):
        with safe_open(manifest.file(names.OUTCOMES), framework="np") as file:
            keys = [key for key in file.keys() if key.startswith(before)]  # noqa: SIM118
            found |= {key.removeprefix(before): file.get_tensor(key) for key in keys}
    return found


def _rows(series: Series, inputs: Inputs) -> Iterator[Row]:
    whole = manifests_of(series, inputs)
    found = chain(_losses(series, inputs), _layer_errors(whole), _accuracies(series, inputs))
    yield from _placed(series, whole, found)
    for manifest in (
        each for probe in names.PROBES for each in inputs.get(series.label(probe), ())
    ):
        values = measurements.read_csv(manifest.file(names.VALUES), measurements.TEXT)
        yield from _placed(series, [manifest], _records(values))


def _placed(series: Series, manifests: Sequence[Manifest], found: Iterable[Row]) -> Iterator[Row]:
    """Values of checkpoints as rows that say what was measured."""
    places: dict[str, Row] = {each.id: asdict(each) for each in Trajectory(manifests).checkpoints}
    digests = {id_: digest for each in manifests for id_, digest in each.facts["digests"].items()}
    for measured in found:
        name = measured[CHECKPOINT]
        yield {**asdict(series), **places[name], "checkpoint": digests[name], **measured}


def _value(
    checkpoint: str, metric: str, found: tuple[float, float], task: str | None = None
) -> Row:
    value, error = found
    measured = {CHECKPOINT: checkpoint, names.TASK: task, names.METRIC: metric}
    return {**measured, names.VALUE: value, names.ERROR: error}


def _losses(series: Series, inputs: Inputs) -> Iterator[Row]:
    full = block_losses(in_full_precision(series), inputs)
    for name, found in block_losses(series, inputs).items():
        yield _value(name, names.LOSS, measurements.mean_and_error(found))
        if series.quantizer != FULL_PRECISION:
            pair = full[name], found
            yield _value(name, names.INCREASE, measurements.increase(*pair))
            yield _value(name, names.QUANTIZATION_ERROR, measurements.relative_increase(*pair))


def _layer_errors(manifests: Sequence[Manifest]) -> list[Row]:
    """Mean over layers of the errors of every checkpoint."""
    files = [each.file(names.LAYERS) for each in manifests if names.LAYERS in each.files]
    if not files:
        return []
    table = pd.concat([measurements.read_csv(file, measurements.TEXT) for file in files])
    means = table.groupby(CHECKPOINT)[list(names.LAYER_METRICS)].mean().reset_index()
    return _records(means.melt(CHECKPOINT, var_name=names.METRIC, value_name=names.VALUE))


def _accuracies(series: Series, inputs: Inputs) -> Iterator[Row]:
    """A value for every checkpoint, task and metric, and one for the mean over the tasks."""
    counted, fp = tasks(series, inputs), in_full_precision(series)
    full, right = ({task: outcomes(one, task, inputs) for task in counted} for one in (fp, series))
    inside = [task for task, counts in counted.items() if counts]
    for name in right[inside[0]] if inside else ():
        scores = {task: measurements.mean_and_error(right[task][name]) for task in counted}
        mean = measurements.mean_over_tasks([scores[task] for task in inside])
        for task, found in {**scores, MEAN: mean}.items():
            yield _value(name, names.ACCURACY, found, task)
        if series.quantizer != FULL_PRECISION:
            pairs = {task: (full[task][name], right[task][name]) for task in counted}
            groups = {**{task: [task] for task in counted}, MEAN: inside}
            for task, group in groups.items():
                found = measurements.degradation([pairs[each] for each in group])
                yield _value(name, names.DEGRADATION, found, task)


def _records(table: pd.DataFrame) -> list[Row]:
    rows: list[Any] = table.to_dict("records")
    return rows
