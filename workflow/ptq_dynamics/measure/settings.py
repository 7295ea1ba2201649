"""Settings of the stages that measure losses, and what a series of measurements is."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LossSettings:
    """Validation of some checkpoints on the first `blocks` blocks of `context` tokens, `batch` at
    once; full precision is evaluated in float32, quantized models in their own dtype."""

    checkpoints: tuple[str, ...]
    context: int
    blocks: int
    batch: int
    full_precision: bool


@dataclass(frozen=True)
class AccuracySettings:
    """Some checkpoints on a task: its first `documents` (None: all), after `shots` examples, in
    `batch` sequences of at most `context` tokens at once; full precision as in `LossSettings`."""

    checkpoints: tuple[str, ...]
    context: int
    documents: int | None
    shots: int
    batch: int
    backend: Literal["transformers", "vllm"]
    full_precision: bool


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
        """Label of a job's inputs that hold one kind of its raw results: losses, layers, a probe's
        name, or accuracy and a task's name."""
        return f"{kind} {self.trajectory} seed {self.seed} {self.quantizer}"


@dataclass(frozen=True)
class CollectSettings:
    """All series of a scale."""

    series: tuple[Series, ...]
