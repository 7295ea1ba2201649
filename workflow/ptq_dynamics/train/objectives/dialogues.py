"""Objectives on dialogues. Rows hold tokens and marks (1 for answers), int64 [rows, 2, length]."""

from typing import TYPE_CHECKING, ClassVar, Literal

from ptq_dynamics.base.fields import Rate
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Batches, Objective

if TYPE_CHECKING:
    from torch import Tensor, nn


class Answers(Objective):
    """Supervised fine-tuning (SFT): mean cross-entropy in nats of the tokens of answers."""

    kind: Literal["answers"]

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Batches:
        """Return packed dialogues (as by SmolLM3), int64 [batch, 2, context + 1]."""
        from ptq_dynamics.corpus import tokens

        return tokens.TrainingData(corpus, context, batch, seed, tokens.answers(corpus))

    def count(self, rows: "Tensor") -> "Tensor":
        """Return the number of tokens of answers, which may be 0."""
        return rows[:, 1, 1:].sum()

    def loss(self, model: "nn.Module", rows: "Tensor", before: "nn.Module | None") -> "Tensor":
        """Sum the losses of tokens of answers."""
        return _losses(model, rows).sum()


class Preferences(Objective):
    """Anchored preference optimization (APO-zero, arXiv 2408.06266): mean over pairs of answers of
    1 − σ(r(right)) + σ(r(wrong)) with r(y) = β (log π(y) − log π₀(y)) and the model before, π₀."""

    anchored: ClassVar = True
    kind: Literal["preferences"]
    anchor: Literal["zero"]
    beta: Rate

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Batches:
        """Return pairs of dialogues, int64 [batch, 2, 2, length]."""
        from ptq_dynamics.corpus.tokens import Pairs

        return Pairs(corpus, context, batch, seed)

    def count(self, rows: "Tensor") -> int:
        """Return the number of pairs."""
        return len(rows)

    def loss(self, model: "nn.Module", rows: "Tensor", before: "nn.Module | None") -> "Tensor":
        """Sum the losses of pairs."""
        import torch

        assert before is not None  # since it is anchored
        rows = rows.flatten(0, 1)
        with torch.no_grad():
            reference = _losses(before, rows).sum(dim=1)
        gains = self.beta * (reference - _losses(model, rows).sum(dim=1))
        right, wrong = gains.view(-1, 2).unbind(dim=1)
        return (1 - right.sigmoid() + wrong.sigmoid()).sum()


def _losses(model: "nn.Module", rows: "Tensor") -> "Tensor":
    # Cross-entropy of each token of answers, and 0 of other tokens, float32 [rows, length - 1].
    from ptq_dynamics import models

    tokens, counted = rows[:, 0], rows[:, 1, 1:]
    return models.token_losses(model, tokens[:, :-1], tokens[:, 1:]) * counted
