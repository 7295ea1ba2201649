"""The next token of plain text: pre-training, and stages that go on with it."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Batches, Objective

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ptq_dynamics.train.objectives import Loss


class Language(Objective):
    """Mean cross-entropy of all tokens, nats."""

    of_dialogues: ClassVar[bool] = False
    kind: Literal["language"] = "language"

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Batches:
        """Sequences of the text, int64 [batch, context + 1]."""
        from ptq_dynamics.corpus.tokens import TrainingData

        return TrainingData(corpus, context, batch, seed)

    def loss(self, start: Path | None) -> "Loss":
        """Of parts of a batch, int64 [rows, context + 1]."""
        from ptq_dynamics import models

        def of(forward: "nn.Module", part: "Tensor", whole: "Tensor") -> "Tensor":
            losses = models.token_losses(forward, part[:, :-1], part[:, 1:])
            return losses.sum() / whole[:, 1:].numel()

        return of
