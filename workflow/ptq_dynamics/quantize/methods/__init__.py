"""Quantizers, one module each: what config/quantizers.yaml says of one, and how it quantizes. It is
given a calibration set; it gives weights and their files."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Count, Strict
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Manifest


class CalibrationSettings(Strict):
    """`sequences` blocks of `context` tokens, `batch` at once, or with `documents` so many
    documents cut to `context` tokens; `draw` says which so many of the split, 1 for the first."""

    context: int
    sequences: int
    documents: bool
    batch: int
    draw: int

    def read(self, corpus: Manifest) -> "Calibration":
        """The calibration set of a corpus."""
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
    """The calibration set, int64 [sequences, context], shorter sequences filled up with -1
    (`corpus.tokens.FILLING`), and how many sequences of equal length go at once."""

    tokens: Any
    batch_size: int

    @property
    def together(self) -> int:
        """How many sequences go at once: one, where they differ in length."""
        return 1 if bool((self.tokens < 0).any()) else self.batch_size

    def batches(self) -> list[Any]:
        """The sequences that go at once, int64 [batch, length], without filling."""
        batches = self.tokens.split(self.together)
        return [batch[:, : int((batch >= 0).sum(dim=1).max())] for batch in batches]


@dataclass(frozen=True)
class Quantized:
    """One quantized checkpoint: the dequantized weights by layer, to be compared with the original
    ones; `save` writes the checkpoint folder `target` of the quantized checkpoint `source`;
    `raised_damping` by layer, where a tool raised it."""

    weights: Mapping[str, Any]
    save: Callable[[Path, Path], None]
    raised_damping: Mapping[str, float] = field(default_factory=dict)


class Quantizer(Strict):
    """What every quantizer has and answers."""

    method: str
    bits: int

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """The checkpoint in a folder, quantized by a resolved quantizer: it has this or `each`."""
        raise NotImplementedError

    def each(
        self, folders: Sequence[Path], calibration: Calibration, context: Context[Any]
    ) -> Iterator[Quantized]:
        """Several checkpoints, one after the other, for a job."""
        return (self.quantize(folder, calibration) for folder in folders)

    def resolved(self, widths: Collection[int]) -> Self:
        """The same for a model whose layers have these numbers of input columns."""
        return self

    def misfit(self, widths: Collection[int]) -> str | None:
        """What is wrong with it for such a model, or None."""
        return None

    def refuses(self, model: Any) -> str | None:
        """Why it cannot quantize a model of this architecture, or None."""
        return None

    @property
    def columns(self) -> Any:
        """Columns in a group, once resolved; None where there are no groups of columns."""
        return None

    @property
    def calibration_draw(self) -> int:
        """Which calibration set it takes, where it takes one."""
        return getattr(self, "draw", 1)


class Calibrated(Quantizer):
    """A quantizer that looks at activations; `draw` says on which calibration set: 1 is the first
    of the split, 2 the one after it."""

    draw: Count = 1


class AtMost(Strict):
    """The largest group size up to this that divides every width of the model."""

    at_most: Count


class Grouped(Quantizer):
    """A quantizer that has a scale for every `group_size` columns of a row."""

    group_size: Count | AtMost

    @property
    def columns(self) -> Any:
        """Columns in a group, once resolved."""
        return None if isinstance(self.group_size, AtMost) else self.group_size

    def resolved(self, widths: Collection[int]) -> Self:
        """The same with a number as group size."""
        if not isinstance(self.group_size, AtMost):
            return self
        sizes, common = range(1, self.group_size.at_most + 1), math.gcd(*widths)
        largest = max(size for size in sizes if common % size == 0)
        return self.model_copy(update={"group_size": largest})

    def misfit(self, widths: Collection[int]) -> str | None:
        """A group size that does not divide a width."""
        for width in widths if self.columns else ():
            if width % self.columns:
                return (
                    f"group_size is {self.columns}, which does not divide the layer width {width}; "
                    "choose a divisor, or {at_most: N}"
                )
        return None


AnyQuantizer = Annotated[Quantizer, OneOf(__name__, by="method")]
