"""Supervised fine-tuning (SFT) on dialogues, packed as by SmolLM3."""

from typing import Any, Literal

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Objective, answer_losses


class Answers(Objective):
    """Mean cross-entropy of the tokens of answers in nats."""

    kind: Literal["answers"]

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Any:
        """Return sequences of tokens and marks (1 for answers), int64 [batch, 2, context + 1]."""
        from ptq_dynamics.corpus import tokens

        return tokens.TrainingData(corpus, context, batch, seed, tokens.answers(corpus))

    def count(self, rows: Any) -> Any:
        """Return the number of tokens of answers, which may be 0."""
        return rows[:, 1, 1:].sum()

    def loss(self, model: Any, rows: Any, before: Any) -> Any:
        """Sum the losses of tokens of answers."""
        return answer_losses(model, rows).sum()
