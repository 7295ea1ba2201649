"""Training objectives: classes that read the batches of a run and compute its loss."""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.engine.manifest import Manifest


class Objective(Strict):
    """A training objective; `of_dialogues` requires a corpus of dialogues, and `anchored` compares
    with the model at the start of the run."""

    of_dialogues: ClassVar[bool] = True
    anchored: ClassVar[bool] = False

    kind: str

    @abstractmethod
    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Any:
        """Return the batches of a run. `at(step, rows)` has some rows of one batch: that of the
        update after `step` updates."""

    @abstractmethod
    def count(self, rows: Any) -> Any:
        """Return the number of terms of the mean that is the loss."""

    @abstractmethod
    def loss(self, model: Any, rows: Any, before: Any) -> Any:
        """Return the sum of these terms, 0-dimensional; `before` is the model at the start, if the
        objective is anchored."""


def answer_losses(model: Any, rows: Any) -> Any:
    """Return cross-entropy in nats of tokens of answers, and 0 of other tokens, float32
    [rows, length]. Rows hold tokens and marks (1 for answers), int64 [rows, 2, length + 1]."""
    from ptq_dynamics import models

    tokens, counted = rows[:, 0], rows[:, 1, 1:]
    return models.token_losses(model, tokens[:, :-1], tokens[:, 1:]) * counted


AnyObjective = Annotated[Objective, OneOf(__name__, by="kind")]
