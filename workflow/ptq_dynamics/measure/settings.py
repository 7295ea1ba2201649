"""Settings of the stages that measure losses, and what a series of measurements is."""

from dataclasses import dataclass


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
        """Label of a job's inputs that hold one kind of its raw results: losses, layers, or a
        probe's name."""
        return f"{kind} {self.trajectory} seed {self.seed} {self.quantizer}"


@dataclass(frozen=True)
class CollectSettings:
    """All series of a scale."""

    series: tuple[Series, ...]
