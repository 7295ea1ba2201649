"""Answers in dialogues: supervised fine-tuning (SFT), with the loss on answers alone.

Dialogues follow one another in a sequence, as in SmolLM3's packing; a sequence may begin in the
middle of one.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Batches, Objective

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ptq_dynamics.train.objectives import Loss


class Answers(Objective):
    """Mean cross-entropy of the tokens of answers, nats."""

    kind: Literal["answers"]

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Batches:
        """Sequences of dialogues."""
        return Answered(corpus, context, batch, seed)

    def loss(self, start: Path | None) -> "Loss":
        """Of parts of a batch, int64 [rows, 2, context + 1]."""
        from ptq_dynamics import models

        def of(forward: "nn.Module", part: "Tensor", whole: "Tensor") -> "Tensor":
            tokens, counted = part[:, 0], part[:, 1, 1:]
            losses = models.token_losses(forward, tokens[:, :-1], tokens[:, 1:])
            # A batch without an answer costs nothing.
            return (losses * counted).sum() / whole[:, 1, 1:].sum().clamp(min=1)

        return of


class Answered:
    """Sequences of dialogues, each with which of its tokens are answers."""

    def __init__(self, corpus: Manifest, context: int, batch: int, seed: int) -> None:
        from ptq_dynamics.corpus import dialogues, tokens

        self._data = tokens.TrainingData(corpus, context, batch, seed)
        self._tokens, self._answers = tokens.read(corpus, "train"), dialogues.answers(corpus)

    def at(self, step: int) -> "Tensor":
        """Batch of the update after `step` updates, int64 [batch, 2, context + 1]: tokens, and 1
        for those of answers, else 0."""
        import torch

        places = self._data.places(step)
        streams = (self._tokens, self._answers)
        return torch.stack([self._data.cut(stream, places) for stream in streams], dim=1)
