"""Next-token prediction on plain text."""

from typing import TYPE_CHECKING, ClassVar, Literal

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Batches, Objective

if TYPE_CHECKING:
    from torch import Tensor, nn


class OnText(Objective):
    """A mean over all tokens of plain text."""

    of_dialogues: ClassVar = False

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Batches:
        """Return sequences of tokens, int64 [batch, context + 1]."""
        from ptq_dynamics.corpus.tokens import TrainingData

        return TrainingData(corpus, context, batch, seed)

    def count(self, rows: "Tensor") -> int:
        """Return the number of tokens without the first of each row."""
        return rows[:, 1:].numel()


class Language(OnText):
    """Mean cross-entropy of all tokens in nats."""

    kind: Literal["language"] = "language"

    def loss(self, model: "nn.Module", rows: "Tensor", before: "nn.Module | None") -> "Tensor":
        """Sum the losses of rows, int64 [rows, context + 1]."""
        return summed_loss(model(rows[:, :-1], use_cache=False).logits, rows[:, 1:])


def summed_loss(logits: "Tensor", targets: "Tensor") -> "Tensor":
    """Return the sum of cross-entropies in nats over all targets, of logits of any type."""
    from ptq_dynamics.train import cross_entropy

    return cross_entropy.summed(logits.float(), targets)
