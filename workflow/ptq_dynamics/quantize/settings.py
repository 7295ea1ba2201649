"""Settings of the stages of this room, as they cross the job border.

What a method itself is set to is a dataclass in its own module, so that a new method changes no
other's code.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from ptq_dynamics.measure.settings import Series

Q = TypeVar("Q")


@dataclass(frozen=True)
class QuantizeSettings(Generic[Q]):
    """Quantization of `checkpoints` with the method's settings `quantizer`, on
    `calibration_sequences` blocks of `context` tokens, `calibration_batch` at once, or with
    `calibration_documents` on so many documents cut to `context` tokens; `calibration_draw` says
    which so many of the split, 1 for the first."""

    checkpoints: tuple[str, ...]
    context: int
    calibration_sequences: int
    calibration_documents: bool
    calibration_batch: int
    calibration_draw: int
    quantizer: Q


@dataclass(frozen=True)
class EnvironmentSettings:
    """A virtual environment in `folder`, from the lock file `lock`; `digest` is that of what
    it says, without its comments."""

    lock: str
    folder: str
    digest: str


@dataclass(frozen=True)
class ComparisonSettings:
    """Groups of quantizers with equal settings, by name, and the series of them all and of full
    precision."""

    groups: tuple[tuple[str, ...], ...]
    series: tuple[Series, ...]
