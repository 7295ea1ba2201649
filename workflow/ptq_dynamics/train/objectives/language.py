"""The next token of plain text: pre-training, and stages that go on with it."""

from pathlib import Path

from torch import Tensor, nn

from ptq_dynamics import models
from ptq_dynamics.corpus.tokens import TrainingData
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives.settings import Nothing as Settings
from ptq_dynamics.train.settings import TrainSettings

__all__ = ["Objective", "Settings", "data"]


def data(corpus: Manifest, settings: TrainSettings) -> TrainingData:
    """Sequences of the text, int64 [batch, context + 1]."""
    return TrainingData(corpus, settings.context, settings.batch, settings.seed)


class Objective:
    """Mean cross-entropy of all tokens, nats."""

    def __init__(self, _settings: Settings, _start: Path | None) -> None:
        pass

    def loss(self, forward: nn.Module, part: Tensor, whole: Tensor) -> Tensor:
        """What a part of a batch, int64 [rows, context + 1], adds to the mean."""
        losses = models.token_losses(forward, part[:, :-1], part[:, 1:])
        return losses.sum() / whole[:, 1:].numel()
