"""The next token of plain text: pre-training, and stages that go on with it."""

from typing import Any, ClassVar, Literal

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives import Objective


class Language(Objective):
    """Mean cross-entropy of all tokens, nats."""

    of_dialogues: ClassVar = False
    kind: Literal["language"] = "language"

    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Any:
        """Sequences of the text, int64 [batch, context + 1]."""
        from ptq_dynamics.corpus.tokens import TrainingData

        return TrainingData(corpus, context, batch, seed)

    def loss(self, forward: Any, part: Any, whole: Any, before: Any) -> Any:
        """Of parts of a batch, int64 [rows, context + 1]."""
        from ptq_dynamics.train.cross_entropy import CrossEntropy

        logits = forward(part[:, :-1], use_cache=False).logits.float()
        return CrossEntropy.apply(logits, part[:, 1:]).sum() / whole[:, 1:].numel()
