"""Settings of the stages of this room, as they cross the job border: the planner fills them, the
stages read them. What a method itself is set to is a dataclass of its own."""

from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

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
class Gptq:
    """`activation_order` is "static" or none; `damping` is a share of the Hessian's mean diagonal,
    `block_size` in columns."""

    bits: int
    group_size: int
    symmetric: bool
    activation_order: str | None
    damping: float
    block_size: int


@dataclass(frozen=True)
class Awq:
    """`duo_scaling` takes scales from weights and activations (true, false or "both");
    `grid_points` scales are tried for every layer."""

    bits: int
    group_size: int
    symmetric: bool
    duo_scaling: bool | Literal["both"]
    grid_points: int


@dataclass(frozen=True)
class Int8:
    """Columns of activations with larger magnitudes than `threshold` stay unrounded; 0 rounds
    all."""

    bits: ClassVar[int] = 8
    threshold: float


@dataclass(frozen=True)
class Nf4:
    """`block_size` in weights, in row order; `double_quantization` has the blocks' scales in 8
    bits."""

    bits: ClassVar[int] = 4
    block_size: int
    double_quantization: bool


@dataclass(frozen=True)
class Rtn:
    """The grid."""

    bits: int
    group_size: int


@dataclass(frozen=True)
class ForeignGptq:
    """What the scripts of all tools are given; `method` names the script."""

    method: str
    bits: int
    group_size: int
    symmetric: bool
    activation_order: bool
    static_groups: bool
    damping: float
    damping_increment: float
    true_sequential: bool
    mse: float


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
