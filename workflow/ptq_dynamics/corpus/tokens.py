"""Read token files: little-endian uint16 or uint32, memory-mapped."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import splits
from ptq_dynamics.corpus.splits import Split
from ptq_dynamics.engine.manifest import Manifest

FILLING = -1
TOO_SHORT = 10


def read_split(corpus: Manifest, split: Split) -> np.ndarray:
    """Return the tokens of a split, memory-mapped uint16 or uint32 [n]."""
    stored = np.dtype(corpus.facts[splits.DTYPE]).newbyteorder("<")
    return np.memmap(corpus.file(f"{split}.bin"), dtype=stored, mode="r")


def blocks(corpus: Manifest, split: Split, context: int, count: int | None = None) -> Tensor:
    """Return `count` (None: all) blocks of `context` tokens (section 2), int64 [count, context].
    The tokens with which blocks of the corpus begin count as well."""
    tokens, begin = read_split(corpus, split), corpus.facts.get(splits.BEGIN, [])
    own = context - len(begin)
    available = len(tokens) // own
    wanted = max(1, available) if count is None else count
    if available < wanted:
        raise _too_small(corpus, split, f"{available} blocks of {context} tokens", wanted)
    table = np.empty((wanted, context), dtype=np.int64)
    table[:, : len(begin)] = begin
    table[:, len(begin) :] = tokens[: wanted * own].reshape(wanted, own)
    return torch.from_numpy(table)


def documents(corpus: Manifest, context: int, count: int, before: int = 0) -> Tensor:
    """Return documents of the calibration split (section 3), cut or filled, int64 [count, context],
    without those of at most `TOO_SHORT` tokens, as in GPTQModel."""
    tokens, begin = read_split(corpus, "calibration"), corpus.facts.get(splits.BEGIN, [])
    starts, ends = _limits(corpus, splits.ENDS)
    if len(ends) < before + count:
        raise _too_small(corpus, "calibration", f"{len(ends)} whole documents", before + count)
    table = np.full((count, context), FILLING, dtype=np.int64)
    for row, start, end in zip(table, starts[before:], ends[before:], strict=False):
        document = [*begin, *tokens[start : min(end, start + context - len(begin))]]
        row[: len(document)] = document
    return torch.from_numpy(table[(table != FILLING).sum(axis=1) > TOO_SHORT])


def _limits(corpus: Manifest, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return where documents start and end, in tokens, int64 [n] each."""
    ends = np.fromfile(corpus.file(name), dtype=splits.ENDS_DTYPE).astype(np.int64)
    return np.concatenate([[0], ends[:-1]]), ends


def _too_small(corpus: Manifest, split: Split, available: str, wanted: int) -> Problem:
    return Problem(
        f"{corpus.folder / split}.bin holds {available}, but {wanted} are required; "
        "enlarge the split in the scale's file under config/scales"
    )


class TrainingData:
    """Batches of sequences at stride `context`, in an order that follows from seed and epoch."""

    def __init__(
        self, corpus: Manifest, context: int, batch: int, seed: int, *marks: np.ndarray
    ) -> None:
        self._streams = (read_split(corpus, "train"), *marks)
        self._context, self._batch, self._seed = context, batch, seed
        self.sequences = (len(self._streams[0]) - 1) // context
        if self.sequences < batch:
            raise _too_small(corpus, "train", f"{self.sequences} sequences", batch)

    def at(self, step: int, rows: Sequence[int] | None = None) -> Tensor:
        """Return rows (None: all) of a batch, int64 [rows, (2,) context + 1], 2 with marks."""
        sequences = []
        for row in range(self._batch) if rows is None else rows:
            epoch, index = divmod(step * self._batch + row, self.sequences)
            start = int(order(self._seed, epoch, self.sequences)[index]) * self._context
            sequences += [stream[start : start + self._context + 1] for stream in self._streams]
        batch = torch.from_numpy(np.stack(sequences).astype(np.int64))
        return batch.unflatten(0, (-1, len(self._streams))).squeeze(1)


@lru_cache(maxsize=1)
def order(seed: int, epoch: int, count: int) -> np.ndarray:
    """Return the order in which an epoch visits `count` sequences, int64 [count]."""
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(count)


def answers(corpus: Manifest) -> np.ndarray:
    """Return marks of train's tokens, 1 in answers, memory-mapped uint8 [n]."""
    return np.memmap(corpus.file(splits.ANSWERS), dtype=np.uint8, mode="r")


class Pairs:
    """Batches of dialogues that fit into the context, paired with another dialogue's answer."""

    def __init__(self, corpus: Manifest, context: int, batch: int, seed: int) -> None:
        marks = answers(corpus).astype(np.int8)
        self._tokens, self._batch, self._seed = read_split(corpus, "train"), batch, seed
        self._starts, self._ends = _limits(corpus, splits.DIALOGUE_ENDS)
        self._turns = np.flatnonzero(np.diff(marks) == 1) + 1
        longest = (self._turns - self._starts).max() + (self._ends - self._turns).max()
        self._length = min(context, int(longest)) + 1
        self._fitting = np.flatnonzero(self._ends - self._starts <= self._length)
        if len(self._fitting) < max(2, batch):
            raise Problem(
                f"{corpus.path} has {len(self._fitting)} dialogues of at most {self._length} "
                f"tokens for a batch of {batch}; add packages or raise its context in config/scales"
            )

    def at(self, step: int, rows: Sequence[int] | None = None) -> Tensor:
        """Return rows (None: all) of a batch, int64 [rows, 2, 2, length]: right and wrong answer,
        tokens and marks."""
        pairs = []
        for row in range(self._batch) if rows is None else rows:
            epoch, index = divmod(step * self._batch + row, len(self._fitting))
            visited = order(self._seed, epoch, len(self._fitting))
            mine, other = (int(self._fitting[visited[place]]) for place in (index, index - 1))
            pairs.append(np.stack([self._row(mine, mine), self._row(mine, other)]))
        return torch.from_numpy(np.stack(pairs))

    def _row(self, question: int, answer: int) -> np.ndarray:
        before = self._tokens[self._starts[question] : self._turns[question]]
        after = self._tokens[self._turns[answer] : self._ends[answer]]
        row = np.zeros((2, self._length), dtype=np.int64)
        tokens = np.concatenate([before, after])[: self._length]
        row[0, : len(tokens)] = tokens
        row[1, len(before) : len(tokens)] = 1
        return row
