"""Preferences: of two answers, the right one gains on what the model was before, the wrong one
falls (anchored preference optimization, APO, arXiv 2408.06266).

With r(y) = β (log π(y) − log π₀(y)), the model before frozen as π₀: APO-zero minimises
1 − σ(r(right)) + σ(r(wrong)), APO-down σ(r(right)) + 1 − σ(r(right) − r(wrong)).
"""

from typing import Any, ClassVar, Literal

import numpy as np

from ptq_dynamics.base.fields import Rate
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Objective


class Preferences(Objective):
    """Mean loss of pairs, without unit, by APO-zero or APO-down, with its β."""

    anchored: ClassVar = True
    kind: Literal["preferences"]
    anchor: Literal["zero", "down"]
    beta: Rate

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Any:
        """Pairs of dialogues; a batch has as many of them as it has sequences."""
        return Pairs(corpus, context, batch, seed)

    def loss(self, forward: Any, part: Any, whole: Any, before: Any) -> Any:
        """Of parts of a batch, int64 [pairs, 2, 2, length]."""
        import torch

        rows = part.flatten(0, 1)
        with torch.no_grad():
            reference = log_likelihoods(before, rows)
        gains = self.beta * (log_likelihoods(forward, rows) - reference)
        right, wrong = gains.view(-1, 2).unbind(dim=1)
        return self.apo(right, wrong).sum() / len(whole)

    def apo(self, right: Any, wrong: Any) -> Any:
        """Loss of pairs [n] from β times the gains in log-likelihood of both answers, [n] each."""
        if self.anchor == "zero":
            return 1 - right.sigmoid() + wrong.sigmoid()
        return right.sigmoid() + 1 - (right - wrong).sigmoid()


def log_likelihoods(model: Any, rows: Any) -> Any:
    """Log-likelihood of the answers, float32 [rows], of int64 [rows, 2, length]."""
    from ptq_dynamics import models

    tokens, counted = rows[:, 0], rows[:, 1, 1:]
    return -(models.token_losses(model, tokens[:, :-1], tokens[:, 1:]) * counted).sum(dim=1)


class Pairs:
    """Dialogues with their own answer, and with that of another one; an epoch has all of them that
    fit into the context, in an order that follows from the seed."""

    def __init__(self, corpus: Manifest, context: int, batch: int, seed: int) -> None:
        from ptq_dynamics.corpus.tokens import Dialogues

        self._found = Dialogues(corpus)
        self._length = min(context, self._found.longest) + 1
        self._fitting = np.flatnonzero(self._found.lengths <= self._length)
        self._batch, self._seed = batch, seed
        if len(self._fitting) < max(2, batch):
            raise Problem(
                f"{corpus.path} has {len(self._fitting)} dialogues of at most {self._length} "
                f"tokens, fewer than a batch of {batch}; add packages to the corpus that it is "
                "made of, or raise its context, in the scale's file under config/scales"
            )

    def at(self, step: int) -> Any:
        """Batch of the update after `step` updates, int64 [batch, 2, 2, length]: right, wrong;
        tokens, and 1 for those of the answer, else 0. A longer wrong answer is cut."""
        import torch

        positions = range(step * self._batch, (step + 1) * self._batch)
        return torch.from_numpy(np.stack([self._pair(position) for position in positions]))

    def _pair(self, position: int) -> np.ndarray:
        from ptq_dynamics.corpus.tokens import order

        epoch, index = divmod(position, len(self._fitting))
        visited = order(self._seed, epoch, len(self._fitting))
        mine, other = (int(self._fitting[visited[place]]) for place in (index, index - 1))
        return np.stack([self._row(mine, mine), self._row(mine, other)])

    def _row(self, question: int, answer: int) -> np.ndarray:
        before, after = self._found.question(question), self._found.answer(answer)
        row = np.zeros((2, self._length), dtype=np.int64)
        tokens = np.concatenate([before, after])[: self._length]
        row[0, : len(tokens)] = tokens
        row[1, len(before) : len(tokens)] = 1
        return row
