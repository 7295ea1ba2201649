"""Preferences: of two answers, the right one gains on what the model was before, the wrong one
falls (anchored preference optimization, APO, arXiv 2408.06266).

With r(y) = β (log π(y) − log π₀(y)), the model before frozen as π₀: APO-zero minimises
1 − σ(r(right)) + σ(r(wrong)), APO-down σ(r(right)) + 1 − σ(r(right) − r(wrong)).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ptq_dynamics.base.fields import Rate
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Batches, Objective

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ptq_dynamics.train.objectives import Loss


class Preferences(Objective):
    """Mean loss of pairs, without unit, by APO-zero or APO-down, with its β."""

    kind: Literal["preferences"]
    anchor: Literal["zero", "down"]
    beta: Rate

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Batches:
        """Pairs of dialogues; a batch has as many of them as it has sequences."""
        return Pairs(corpus, context, batch, seed)

    def loss(self, start: Path | None) -> "Loss":
        """Of parts of a batch, int64 [pairs, 2, 2, length]."""
        import torch

        from ptq_dynamics import models

        if start is None:
            raise Problem(
                "preferences are learned from a model that answers, and this run begins with fresh "
                "weights; give it a stage to come after"
            )
        frozen = models.load(start, torch.float32).requires_grad_(False)

        def of(forward: "nn.Module", part: "Tensor", whole: "Tensor") -> "Tensor":
            rows = part.flatten(0, 1)
            with torch.no_grad():
                before = log_likelihoods(frozen, rows)
            gains = self.beta * (log_likelihoods(forward, rows) - before)
            right, wrong = gains.view(-1, 2).unbind(dim=1)
            return self.apo(right, wrong).sum() / len(whole)

        return of

    def apo(self, right: "Tensor", wrong: "Tensor") -> "Tensor":
        """Loss of pairs [n] from β times the gains in log-likelihood of both answers, [n] each."""
        if self.anchor == "zero":
            return 1 - right.sigmoid() + wrong.sigmoid()
        return right.sigmoid() + 1 - (right - wrong).sigmoid()


def log_likelihoods(model: "nn.Module", rows: "Tensor") -> "Tensor":
    """Log-likelihood of the answers, float32 [rows], of int64 [rows, 2, length]."""
    from ptq_dynamics import models

    tokens, counted = rows[:, 0], rows[:, 1, 1:]
    return -(models.token_losses(model, tokens[:, :-1], tokens[:, 1:]) * counted).sum(dim=1)


class Pairs:
    """Dialogues with their own answer, and with that of another one; an epoch has all of them that
    fit into the context, in an order that follows from the seed."""

    def __init__(self, corpus: Manifest, context: int, batch: int, seed: int) -> None:
        import numpy as np

        from ptq_dynamics.corpus import dialogues

        self._found = dialogues.Dialogues(corpus)
        self._length = min(context, self._found.longest) + 1
        self._fitting = np.flatnonzero(self._found.lengths <= self._length)
        self._batch, self._seed = batch, seed
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)
        if len(self._fitting) < max(2, batch):
            raise Problem(
                f"{corpus.path} has {len(self._fitting)} dialogues of at most {self._length} "
                f"tokens, fewer than a batch of {batch}; add packages to the corpus that it is "
                "made of, or raise its context, in the scale's file under config/scales"
            )

    def at(self, step: int) -> "Tensor":
        """Batch of the update after `step` updates, int64 [batch, 2, 2, length]: right, wrong;
        tokens, and 1 for those of the answer, else 0. A longer wrong answer is cut."""
        import torch

        first = step * self._batch
        return torch.stack([self._pair(first + row) for row in range(self._batch)])

    def _pair(self, position: int) -> "Tensor":
        import torch

        from ptq_dynamics.corpus.tokens import order

        epoch, index = divmod(position, len(self._fitting))
        if epoch != self._epoch:
            shuffled = self._fitting[order(self._seed, epoch, len(self._fitting))]
            self._order, self._epoch = shuffled, epoch
        mine, other = int(self._order[index]), int(self._order[index - 1])
        return torch.stack([self._row(mine, mine), self._row(mine, other)])

    def _row(self, question: int, answer: int) -> "Tensor":
        import numpy as np
        import torch

        before, after = self._found.question(question), self._found.answer(answer)
        row = torch.zeros(2, self._length, dtype=torch.int64)
        tokens = np.concatenate([before, after]).astype(np.int64)[: self._length]
        row[0, : len(tokens)] = torch.from_numpy(tokens)
        row[1, len(before) : len(tokens)] = 1
        return row
