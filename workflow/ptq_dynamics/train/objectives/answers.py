"""Answers in dialogues: supervised fine-tuning (SFT), with the loss on answers alone.

Dialogues follow one another in a sequence, as in SmolLM3's packing; a sequence may begin in the
middle of one.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from ptq_dynamics import models
from ptq_dynamics.corpus import dialogues
from ptq_dynamics.corpus.tokens import TrainingData
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives.settings import Nothing as Settings
from ptq_dynamics.train.settings import TrainSettings

__all__ = ["Objective", "Settings", "data"]


class Answered(TrainingData):
    """Sequences of dialogues, each with which of its tokens are answers."""

    def __init__(self, corpus: Manifest, context: int, batch: int, seed: int) -> None:
        super().__init__(corpus, context, batch, seed)
        self._answers = dialogues.answers(corpus)

    def at(self, step: int) -> Tensor:
        """Batch of the update after `step` updates, int64 [batch, 2, context + 1]: tokens, and 1
        for those of answers, else 0."""
        places = self.places(step)
        tokens, answers = self.cut(self._tokens, places), self.cut(self._answers, places)
        return torch.stack([tokens, answers], dim=1)


def data(corpus: Manifest, settings: TrainSettings) -> Answered:
    """Sequences of dialogues."""
    return Answered(corpus, settings.context, settings.batch, settings.seed)


class Objective:
    """Mean cross-entropy of the tokens of answers, nats."""

    def __init__(self, _settings: Settings, _start: Path | None) -> None:
        pass

    def loss(self, forward: nn.Module, part: Tensor, whole: Tensor) -> Tensor:
        """What a part of a batch, int64 [rows, 2, context + 1], adds to the mean."""
        tokens, counted = part[:, 0], part[:, 1, 1:]
        losses = models.token_losses(forward, tokens[:, :-1], tokens[:, 1:])
        # A batch without an answer costs nothing.
        return (losses * counted).sum() / whole[:, 1, 1:].sum().clamp(min=1)
