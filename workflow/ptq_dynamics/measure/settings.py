"""Settings of the stages that measure, and what a series of measurements is."""

from dataclasses import dataclass
from operator import not_
from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.quantize.methods import AnyQuantizer, CalibrationSettings


class Asked(Strict):
    """A task by its name: its first `documents` (None: all), after `shots` examples, in `batch`
    sequences of at most `context` tokens at once."""

    task: str
    documents: int | None
    shots: int
    batch: int
    context: int


class MeasureSettings(Strict):
    """Some checkpoints, in full precision or under a `quantizer` with its `calibration` set: their
    loss on the first `blocks` validation blocks of `context` tokens, `batch` at once, and their
    answers to some `tasks`. Of the last one, what its blocks carry is measured on the first
    `carried` blocks, if any. With `keep`, quantized weights are written; with `skip`, matrices that
    the quantizer does not take stay in full precision; with `layers`, errors of layers are
    computed."""

    checkpoints: tuple[str, ...]
    context: int
    blocks: int
    batch: int
    quantizer: AnyQuantizer | None
    calibration: CalibrationSettings | None
    tasks: tuple[Asked, ...]
    carried: int
    keep: bool
    skip: Annotated[bool, Field(exclude_if=not_)] = False
    layers: Annotated[bool, Field(exclude_if=bool)] = True


@dataclass(frozen=True)
class Series:
    """One trajectory at one seed under one quantizer (`fp`: full precision): what a query selects,
    and the columns of its measurements. `method`, `bits` and `group_size` are the quantizer's."""

    trajectory: str
    seed: int | None
    family: str
    quantizer: str
    method: str
    bits: int | None
    group_size: int | None

    def label(self, kind: str) -> str:
        """Label of a job's inputs that hold one kind of its raw results: what was measured, or a
        probe's name."""
        return f"{kind} {self.trajectory} seed {self.seed} {self.quantizer}"


@dataclass(frozen=True)
class CollectSettings:
    """All series of a scale."""

    series: tuple[Series, ...]


@dataclass(frozen=True)
class ComparisonSettings:
    """Groups of quantizers with equal settings, by name, and the series of them all and of full
    precision."""

    groups: tuple[tuple[str, ...], ...]
    series: tuple[Series, ...]
