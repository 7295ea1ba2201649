"""Token files: flat little-endian uint16, memory-mapped."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ptq_dynamics.problem import Problem


def read(path: Path) -> np.ndarray:
    """Memory-mapped tokens, uint16 [n]."""
    return np.memmap(path, dtype="<u2", mode="r")


def blocks(path: Path, context: int, count: int | None = None) -> Tensor:
    """The first `count` (None: all) blocks of `context` tokens, int64 [count, context], stride
    `context`, the incomplete last one left out (section 2).

    Raises `Problem` when the file holds fewer.
    """
    tokens = read(path)
    available = len(tokens) // context
    if available < (count or 1):
        raise Problem(
            f"{path} holds {available} blocks of {context} tokens, {count or 1} are asked for; "
            "enlarge the split in the scale's file under config/scales"
        )
    count = count or available
    table = np.asarray(tokens[: count * context], dtype=np.int64).reshape(count, context)
    return torch.from_numpy(table)


class TrainingData:
    """Batches whose content depends on the seed and the step alone.

    The token stream is cut into sequences of `context` + 1 tokens (the last is the target of the
    one before it) at stride `context`; each epoch visits all of them in an order of its own.
    """

    def __init__(self, path: Path, context: int, batch: int, seed: int) -> None:
        self._tokens = read(path)
        self._context = context
        self._batch = batch
        self._seed = seed
        self.sequences = (len(self._tokens) - 1) // context
        if self.sequences < batch:
            raise Problem(
                f"{path} holds {self.sequences} sequences, fewer than a batch of {batch}; "
                "enlarge the corpus or the batch in the scale's file under config/scales"
            )
        self._epoch = -1
        self._order = np.empty(0, dtype=np.int64)

    def at(self, step: int) -> Tensor:
        """Batch of the update after `step` updates, int64 [batch, context + 1]."""
        rows = [self._sequence(step * self._batch + row) for row in range(self._batch)]
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    def _sequence(self, position: int) -> np.ndarray:
        epoch, index = divmod(position, self.sequences)
        if epoch != self._epoch:
            generator = np.random.Generator(np.random.PCG64([self._seed, epoch]))
            self._order, self._epoch = generator.permutation(self.sequences), epoch
        start = self._order[index] * self._context
        return self._tokens[start : start + self._context + 1]
