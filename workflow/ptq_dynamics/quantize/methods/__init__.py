"""Quantizers, one module each: an entry of config/quantizers.yaml, and how it quantizes."""

import math
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Count, Strict
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.architectures import Architecture

if TYPE_CHECKING:
    from torch import Tensor


class CalibrationSettings(Strict):
    """Calibration set number `draw`: `sequences` blocks of `context` tokens, `batch` at once.
    With `documents`, the sequences are documents of at most `context` tokens."""

    context: int
    sequences: int
    documents: bool
    batch: int
    draw: int

    def read(self, corpus: Manifest) -> "Calibration":
        """Read the calibration set of a corpus."""
        from ptq_dynamics.corpus import tokens

        before = self.sequences * (self.draw - 1)
        if self.documents:
            table = tokens.documents(corpus, self.context, self.sequences, before)
        else:
            count = before + self.sequences
            table = tokens.blocks(corpus, "calibration", self.context, count)[before:]
        return Calibration(table, self.batch)


@dataclass(frozen=True, eq=False)
class Calibration:
    """A calibration set, int64 [sequences, context], with short sequences padded by -1."""

    tokens: "Tensor"
    batch_size: int

    @property
    def together(self) -> int:
        """The number of sequences in a batch: 1 if their lengths differ."""
        return 1 if bool((self.tokens < 0).any()) else self.batch_size

    def batches(self) -> "list[Tensor]":
        """Return batches of sequences without padding, int64 [batch, length]."""
        batches = self.tokens.split(self.together)
        return [batch[:, : int((batch >= 0).sum(dim=1).max())] for batch in batches]


@dataclass(frozen=True)
class Quantized:
    """A quantized checkpoint: dequantized weights by layer, to compare with the original ones.

    `write` adds quantized weights of a checkpoint folder, its first argument, to the other files.
    `raised_damping` has the layers whose damping a tool increased."""

    weights: "Mapping[str, Tensor]"
    write: Callable[[Path, Path], object]
    raised_damping: Mapping[str, float] = field(default_factory=dict)

    def save(self, source: Path, target: Path) -> None:
        """Copy the checkpoint folder `source` to `target` with quantized weights."""
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors*"))
        self.write(source, target)


class Quantizer(Strict):
    """The base class of quantizers."""

    # Whether it returns weights of layers, which errors of layers need.
    by_layer: ClassVar[bool] = True

    method: str
    bits: int

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """Quantize the checkpoint in a folder."""
        raise NotImplementedError

    def quantize_all(
        self, folders: Sequence[Path], calibration: Calibration, context: Context[object]
    ) -> Iterator[Quantized]:
        """Quantize the checkpoints in several folders, one after the other."""
        return (self.quantize(folder, calibration) for folder in folders)

    def resolved(self, widths: Collection[int]) -> Self:
        """Return the quantizer for a model whose layers have these numbers of input columns."""
        return self

    def misfit(self, widths: Collection[int]) -> str | None:
        """Return why the settings do not fit such a model, or None."""
        return None

    def refuses(self, model: Architecture) -> str | None:
        """Return why the method does not support a model's architecture, or None."""
        return None

    @property
    def resolved_group_size(self) -> Any:
        """The group size, an int; None if it is not resolved or there are no groups."""
        size = getattr(self, "group_size", None)
        return size if isinstance(size, int) else None

    @property
    def calibration_draw(self) -> int:
        """The number of the calibration set."""
        return getattr(self, "draw", 1)


class Calibrated(Quantizer):
    """A quantizer that reads activations on calibration set number `draw`, from 1."""

    draw: Count = 1


class AtMost(Strict):
    """The largest group size up to `at_most` that divides every width of the model."""

    at_most: Count


class Grouped(Quantizer):
    """A quantizer with a scale for every `group_size` columns of a row."""

    group_size: Count | AtMost

    def resolved(self, widths: Collection[int]) -> Self:
        """Return the quantizer with a number as group size."""
        if not isinstance(self.group_size, AtMost):
            return self
        sizes, common = range(1, self.group_size.at_most + 1), math.gcd(*widths)
        largest = max(size for size in sizes if common % size == 0)
        return self.model_copy(update={"group_size": largest})

    def misfit(self, widths: Collection[int]) -> str | None:
        """Return which width the group size does not divide, or None."""
        size = self.resolved_group_size
        wrong = [width for width in widths if size and width % size]
        if not wrong:
            return None
        how = "choose a divisor, or {at_most: N}"
        return f"group_size is {size}, which does not divide the layer width {wrong[0]}; {how}"


AnyQuantizer = Annotated[Quantizer, OneOf(__name__, by="method")]
