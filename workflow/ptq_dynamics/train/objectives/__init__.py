"""What runs are trained for, one module an objective: a class whose fields are its configuration,
which reads the run's batches and says what one costs."""

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from ptq_dynamics.base.components import union
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.engine.manifest import Manifest

if TYPE_CHECKING:
    from torch import Tensor, nn

    # What a part of a batch adds to its mean loss, 0-dimensional, by the model, the part and the
    # whole batch.
    Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


class Batches(Protocol):
    """The batches of a run."""

    def at(self, step: int) -> "Tensor":
        """That of the update after `step` updates: its first dimension can be split."""


class Objective(Strict):
    """What every objective answers."""

    # Whether it is learned from dialogues.
    of_dialogues: ClassVar[bool] = True

    kind: str

    @abstractmethod
    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Batches:
        """The batches of a run on a corpus, so many sequences of `context` tokens each."""

    @abstractmethod
    def loss(self, start: Path | None) -> "Loss":
        """The loss of a run that begins with the weights of the checkpoint `start`, if any."""


if TYPE_CHECKING:
    AnyObjective = Objective
else:
    AnyObjective = union(__name__, Objective, by="kind")
