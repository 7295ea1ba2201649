"""Anchored preference optimization (APO, arXiv 2408.06266) on pairs of answers.

APO-zero minimizes 1 − σ(r(right)) + σ(r(wrong)) with r(y) = β (log π(y) − log π₀(y)), where π₀ is
the frozen model at the start.
"""

from typing import Any, ClassVar, Literal

from ptq_dynamics.base.fields import Rate
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Objective, answer_losses


class Preferences(Objective):
    """Mean APO-zero loss of pairs."""

    anchored: ClassVar = True
    kind: Literal["preferences"]
    anchor: Literal["zero"]
    beta: Rate

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Any:
        """Return pairs of dialogues; a batch has `batch` pairs."""
        from ptq_dynamics.corpus.tokens import Pairs

        return Pairs(corpus, context, batch, seed)

    def count(self, rows: Any) -> Any:
        """Return the number of pairs."""
        return len(rows)

    def loss(self, model: Any, rows: Any, before: Any) -> Any:
        """Sum the losses of pairs, int64 [pairs, 2, 2, length]."""
        import torch

        rows = rows.flatten(0, 1)
        with torch.no_grad():
            reference = answer_losses(before, rows).sum(dim=1)
        gains = self.beta * (reference - answer_losses(model, rows).sum(dim=1))
        right, wrong = gains.view(-1, 2).unbind(dim=1)
        return (1 - right.sigmoid() + wrong.sigmoid()).sum()
