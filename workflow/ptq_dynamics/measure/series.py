"""Series of measurements, queries of them, and settings of the stages that measure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import not_
from typing import Annotated

from pydantic import Field

from ptq_dynamics.base import needs
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.measure.metrics import AnyMetric
from ptq_dynamics.quantize.methods import AnyQuantizer, CalibrationSettings
from ptq_dynamics.trajectories.trajectory import Checkpoint


class TaskSettings(Strict):
    """A task with its first `documents` (None: all), `shots` examples, `batch` sequences at once,
    and at most `context` tokens in each."""

    task: str
    documents: int | None
    shots: int
    batch: int
    context: int


class MeasureSettings(Strict):
    """Checkpoints to measure in full precision or under a `quantizer` with its `calibration` set.

    The loss is measured on `blocks` validation blocks of `context` tokens, `batch` at once, and
    the part that weights carry on the first `carried` blocks. `keep` writes quantized weights,
    `skip` leaves unsupported matrices in full precision, and `layers` computes errors of layers.
    Each of `metrics` is measured in addition."""

    checkpoints: tuple[str, ...]
    context: int
    blocks: int
    batch: int
    quantizer: AnyQuantizer | None
    calibration: CalibrationSettings | None
    tasks: tuple[TaskSettings, ...]
    carried: int
    keep: bool
    skip: Annotated[bool, Field(exclude_if=not_)] = False
    layers: Annotated[bool, Field(exclude_if=bool)] = True
    metrics: Annotated[tuple[AnyMetric, ...], Field(exclude_if=not_)] = ()


@dataclass(frozen=True)
class Query:
    """What is read of measurements: trajectories × metrics × quantizers, each with further `draws`
    of calibration sets; at all seeds if `seeds` is True, or at so many, at least the first."""

    trajectories: tuple[str, ...]
    metrics: tuple[str, ...]
    quantizers: tuple[str, ...] = ()
    seeds: bool | int = False
    draws: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Series:
    """One trajectory at one seed under one quantizer, as columns of the table of measurements.
    The planned checkpoints `places`, if any, give tokens, rates and phases, else the results."""

    trajectory: str
    seed: int | None
    family: str
    quantizer: str
    method: str
    bits: int | None
    group_size: int | None
    places: tuple[Checkpoint, ...] = ()

    def label(self, kind: str = needs.MEASURE) -> str:
        """Return the label of inputs with its measurements, or those of a kind of probe."""
        return needs.measured(self.trajectory, self.seed, self.quantizer, kind)


def in_order(series: Iterable[Series]) -> tuple[Series, ...]:
    """Return series in an order that no figure decides."""
    return tuple(sorted(series, key=Series.label))


@dataclass(frozen=True)
class CollectSettings:
    """The settings of the table: the series of the chosen figures and tables."""

    series: tuple[Series, ...]


@dataclass(frozen=True)
class ComparisonSettings:
    """Groups of quantizers with equal settings, and all series to compare."""

    groups: tuple[tuple[str, ...], ...]
    series: tuple[Series, ...]
