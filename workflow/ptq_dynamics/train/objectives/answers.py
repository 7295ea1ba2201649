"""Answers in dialogues: supervised fine-tuning (SFT), with the loss on answers alone. Dialogues
follow one another, as in SmolLM3's packing; a sequence may begin in the middle of one."""

from typing import Any, Literal

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Objective, answer_losses


class Answers(Objective):
    """Mean cross-entropy of the tokens of answers, nats."""

    kind: Literal["answers"]

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Any:
        """Sequences of dialogues, int64 [batch, 2, context + 1]: tokens, and 1 for those of
        answers, else 0."""
        from ptq_dynamics.corpus import tokens

        return tokens.TrainingData(corpus, context, batch, seed, tokens.answers(corpus))

    def count(self, rows: Any) -> Any:
        """Tokens of answers; a batch without an answer costs nothing."""
        return rows[:, 1, 1:].sum()

    def loss(self, model: Any, rows: Any, before: Any) -> Any:
        """Of rows of such a batch."""
        return answer_losses(model, rows).sum()
