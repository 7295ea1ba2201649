"""Reading the dialogues that a corpus has for training."""

import numpy as np

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import splits, tokens
from ptq_dynamics.corpus.sources.dialogues import ANSWERS, ENDS
from ptq_dynamics.engine.manifest import Manifest


def answers(corpus: Manifest) -> np.ndarray:
    """Which tokens of train are answers, memory-mapped uint8 [n]."""
    if ANSWERS not in corpus.files:
        raise Problem(f"{corpus.path} has no dialogues; name a corpus of source dialogues")
    return np.memmap(corpus.file(ANSWERS), dtype=np.uint8, mode="r")


class Dialogues:
    """The dialogues of train, each a question, then an answer; `lengths` in tokens."""

    def __init__(self, corpus: Manifest) -> None:
        marks = answers(corpus)
        self._tokens = tokens.read(corpus, "train")
        self._ends = np.fromfile(corpus.file(ENDS), dtype=splits.ENDS_DTYPE).astype(np.int64)
        self._starts = np.concatenate([[0], self._ends[:-1]])
        self._turns = np.flatnonzero(np.diff(marks.astype(np.int8)) == 1) + 1
        self.lengths: np.ndarray = self._ends - self._starts

    def __len__(self) -> int:
        return len(self._ends)

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
