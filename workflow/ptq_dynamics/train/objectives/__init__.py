"""What runs are trained for, one module an objective: a class whose fields are its configuration,
which reads the run's batches and says what one costs."""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.engine.manifest import Manifest


class Objective(Strict):
    """What every objective answers."""

    # Whether it is learned from dialogues, and whether against the model that the run begins with.
    of_dialogues: ClassVar[bool] = True
    anchored: ClassVar[bool] = False

    kind: str

    @abstractmethod
    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Any:
        """The batches of a run on a corpus, so many sequences of `context` tokens each:
        `at(step, rows)` has some rows of that of the update after `step` updates."""

    @abstractmethod
    def count(self, rows: Any) -> Any:
        """How many terms the loss of some rows is the mean of."""

    @abstractmethod
    def loss(self, model: Any, rows: Any, before: Any) -> Any:
        """The sum of these terms, 0-dimensional, by the model and, if it is `anchored`, the frozen
        model before."""


def answer_losses(model: Any, rows: Any) -> Any:
    """Cross-entropy of every token of answers in nats, 0 of all others, float32 [rows, length], of
    int64 [rows, 2, length + 1]: tokens, and 1 for those of answers."""
    from ptq_dynamics import models

    tokens, counted = rows[:, 0], rows[:, 1, 1:]
    return models.token_losses(model, tokens[:, :-1], tokens[:, 1:]) * counted


AnyObjective = Annotated[Objective, OneOf(__name__, by="kind")]
