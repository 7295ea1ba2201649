"""Training objectives: classes that read the batches of a run and compute its loss."""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.engine.manifest import Manifest


class Objective(Strict):
    """A training objective; an `anchored` one compares with the model at the start."""

    of_dialogues: ClassVar[bool] = True
    anchored: ClassVar[bool] = False

    kind: str

    @abstractmethod
    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Any:
        """Return batches; `at(step, rows)` has rows of the batch after `step` updates."""

    @abstractmethod
    def count(self, rows: Any) -> Any:
        """Return the number of terms of the mean that is the loss."""

    @abstractmethod
    def loss(self, model: Any, rows: Any, before: Any) -> Any:
        """Return the sum of these terms; an anchored objective uses the model `before`."""


AnyObjective = Annotated[Objective, OneOf(__name__, by="kind")]
