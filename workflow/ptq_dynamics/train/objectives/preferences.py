"""Preferences: of two answers, the right one gains on what the model was before, the wrong one
falls (anchored preference optimization, APO, arXiv 2408.06266).

With r(y) = β (log π(y) − log π₀(y)), the model before frozen as π₀, APO-zero minimises
1 − σ(r(right)) + σ(r(wrong)).
"""

from typing import Any, ClassVar, Literal

from ptq_dynamics.base.fields import Rate
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Objective, answer_losses


class Preferences(Objective):
    """Mean loss of pairs, without unit, by APO-zero with its β."""

    anchored: ClassVar = True
    kind: Literal["preferences"]
    anchor: Literal["zero"]
    beta: Rate

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Any:
        """Pairs of dialogues; a batch has as many of them as it has sequences."""
        from ptq_dynamics.corpus.tokens import Pairs

        return Pairs(corpus, context, batch, seed)

    def count(self, rows: Any) -> Any:
        """Pairs."""
        return len(rows)

    def loss(self, model: Any, rows: Any, before: Any) -> Any:
        """Of pairs, int64 [pairs, 2, 2, length]."""
        import torch

        rows = rows.flatten(0, 1)
        with torch.no_grad():
            reference = answer_losses(before, rows).sum(dim=1)
        gains = self.beta * (reference - answer_losses(model, rows).sum(dim=1))
        right, wrong = gains.view(-1, 2).unbind(dim=1)
        return (1 - right.sigmoid() + wrong.sigmoid()).sum()
