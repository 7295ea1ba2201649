"""Reading the dialogues that a corpus has for training."""

import numpy as np

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import splits
from ptq_dynamics.engine.manifest import Manifest

# 1 for every token of train that belongs to an answer, else 0: uint8 [n].
ANSWERS = "train.answers.bin"
# Where the dialogues of train end, in tokens from its beginning: uint64 [dialogues].
ENDS = "train.ends.bin"
ENDS_DTYPE = np.dtype("<u8")


def answers(corpus: Manifest) -> np.ndarray:
    """Which tokens of train are answers, memory-mapped uint8 [n].

    Raises `Problem` where the corpus has none.
    """
    _require(corpus)
    return np.memmap(corpus.file(ANSWERS), dtype=np.uint8, mode="r")


class Dialogues:
    """The dialogues of train, one by one."""

    def __init__(self, corpus: Manifest) -> None:
        _require(corpus)
        stored = np.dtype(corpus.facts[splits.DTYPE]).newbyteorder("<")
        path = corpus.file(splits.file_name("train"))
        self._tokens = np.memmap(path, dtype=stored, mode="r")
        ends = np.fromfile(corpus.file(ENDS), dtype=ENDS_DTYPE).astype(np.int64)
        self._starts = np.concatenate([[0], ends[:-1]])
        # Every dialogue is a question, then an answer.
        marks = answers(corpus)
        turns = np.flatnonzero(np.diff(marks.astype(np.int8)) == 1) + 1
        self._turns, self._ends = turns, ends

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of every dialogue, int64 [dialogues]."""
        lengths: np.ndarray = self._ends - self._starts
        return lengths

    @property
    def longest(self) -> int:
        """Tokens of the longest question with the longest answer."""
        return int((self._turns - self._starts).max() + (self._ends - self._turns).max())

    def question(self, number: int) -> np.ndarray:
        """Tokens of all that comes before the answer, [n]."""
        return self._tokens[self._starts[number] : self._turns[number]]

    def answer(self, number: int) -> np.ndarray:
        """Tokens of the answer with its end, [n]."""
        return self._tokens[self._turns[number] : self._ends[number]]


def _require(corpus: Manifest) -> None:
    if ANSWERS not in corpus.files:
        raise Problem(
            f"{corpus.path} has no dialogues to learn answers from; name a corpus of source "
            "dialogues in config/families.yaml"
        )
