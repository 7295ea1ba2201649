"""Next-token prediction on plain text."""

from typing import Any, ClassVar, Literal

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Objective


class OnText(Objective):
    """A mean over all tokens of plain text."""

    of_dialogues: ClassVar = False

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Any:
        """Return sequences of tokens, int64 [batch, context + 1]."""
        from ptq_dynamics.corpus.tokens import TrainingData

        return TrainingData(corpus, context, batch, seed)

    def count(self, rows: Any) -> Any:
        """Return the number of tokens without the first of each row."""
        return rows[:, 1:].numel()


class Language(OnText):
    """Mean cross-entropy of all tokens in nats."""

    kind: Literal["language"] = "language"

    def loss(self, model: Any, rows: Any, before: Any) -> Any:
        """Sum the losses of rows, int64 [rows, context + 1]."""
        return losses(model, rows, rows[:, 1:])


def losses(model: Any, rows: Any, targets: Any) -> Any:
    """Return the sum of the losses of rows, int64 [rows, context + 1], with some targets."""
    from ptq_dynamics.train.cross_entropy import summed

    return summed(model(rows[:, :-1], use_cache=False).logits.float(), targets)
