"""Token files: flat little-endian uint16 or uint32, as the corpus says, memory-mapped."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus.splits import DTYPE, ENDS, ENDS_DTYPE, Split, file_name
from ptq_dynamics.engine.manifest import Manifest

FILLING = -1
TOO_SHORT = 10


def read(corpus: Manifest, split: Split) -> np.ndarray:
    """Memory-mapped tokens of a split, uint16 or uint32 [n]."""
    stored = np.dtype(corpus.facts[DTYPE]).newbyteorder("<")
    return np.memmap(corpus.file(file_name(split)), dtype=stored, mode="r")


def blocks(corpus: Manifest, split: Split, context: int, count: int | None = None) -> Tensor:
    """The first `count` (None: all) blocks of `context` tokens, int64 [count, context], stride
    `context`, the incomplete last one left out (section 2)."""
    tokens = read(corpus, split)
    available = len(tokens) // context
    wanted = max(1, available) if count is None else count
    if available < wanted:
        raise _too_small(corpus, split, f"{available} blocks of {context} tokens", wanted)
    table = np.asarray(tokens[: wanted * context], dtype=np.int64).reshape(wanted, context)
    return torch.from_numpy(table)


def documents(corpus: Manifest, context: int, count: int, before: int = 0) -> Tensor:
    """The first `count` documents of the calibration split (section 3) after those `before`, cut to
    `context` tokens and filled up with `FILLING`, int64 [count, context]. As GPTQModel does, those
    of at most `TOO_SHORT` tokens are then left out."""
    tokens = read(corpus, "calibration")
    ends = np.fromfile(corpus.file(ENDS), dtype=ENDS_DTYPE).astype(np.int64)
    if len(ends) < before + count:
        raise _too_small(corpus, "calibration", f"{len(ends)} whole documents", before + count)
    table = np.full((count, context), FILLING, dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]])
    for row, start, end in zip(table, starts[before:], ends[before:], strict=False):
        document = tokens[start : min(end, start + context)]
        row[: len(document)] = document
    return torch.from_numpy(table[(table != FILLING).sum(axis=1) > TOO_SHORT])


def _too_small(corpus: Manifest, split: Split, found: str, wanted: int) -> Problem:
    return Problem(
        f"{corpus.folder / file_name(split)} holds {found}, {wanted} are asked for; enlarge the "
        "split in the scale's file under config/scales"
    )


class TrainingData:
    """Batches whose content depends on the seed and the step alone: sequences of `context` + 1
    tokens at stride `context`, all of which each epoch visits in an order of its own."""

    def __init__(self, corpus: Manifest, context: int, batch: int, seed: int) -> None:
        self._tokens = read(corpus, "train")
        self._context, self._batch, self._seed = context, batch, seed
        self.sequences = (len(self._tokens) - 1) // context
        if self.sequences < batch:
            raise _too_small(corpus, "train", f"{self.sequences} sequences", batch)
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def at(self, step: int) -> Tensor:
        """Batch of the update after `step` updates, int64 [batch, context + 1]."""
        return self.cut(self._tokens, self.places(step))

    def places(self, step: int) -> list[int]:
        """Where the sequences of a batch begin in the stream."""
        found = []
        for position in range(step * self._batch, (step + 1) * self._batch):
            epoch, index = divmod(position, self.sequences)
            if epoch != self._epoch:
                self._order, self._epoch = order(self._seed, epoch, self.sequences), epoch
            found.append(int(self._order[index]) * self._context)
        return found

    def cut(self, stream: np.ndarray, places: Sequence[int]) -> Tensor:
        """The sequences that begin at some places of a stream [n], int64 [places, context + 1]."""
        rows = [stream[start : start + self._context + 1] for start in places]
        return torch.from_numpy(np.stack(rows).astype(np.int64))


def order(seed: int, epoch: int, count: int) -> np.ndarray:
    """The order in which an epoch visits `count` things, int64 [count]."""
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(count)
