"""What a quantizer is given, a calibration set, and what it gives: weights and their files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptq_dynamics.base.fields import Strict
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
