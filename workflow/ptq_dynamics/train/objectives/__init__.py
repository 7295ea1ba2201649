"""Training objectives: classes that read the batches of a run and compute its loss."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.engine.manifest import Manifest


class Slope(NamedTuple):
    """Loss (0-dim) and gradient by parameter, summed over the `count` terms of a whole batch."""

    loss: Any
    gradient: Mapping[str, Any]
    count: Any


class Objective(Strict):
    """A training objective; an `anchored` one compares with the model at the start.
    Parts of a batch are trained apart, so a term of the loss depends on its rows alone. A `sloped`
    objective minimizes another loss, which depends on the gradient of the whole batch."""

    of_dialogues: ClassVar[bool] = True
    anchored: ClassVar[bool] = False
    sloped: ClassVar[bool] = False

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

    def sloped_loss(self, model: Any, rows: Any, slope: Slope) -> Any:
        """Return the share of rows in the loss that a sloped objective minimizes, times the number
        of terms; `slope` is that of `loss`."""
        raise NotImplementedError


AnyObjective = Annotated[Objective, OneOf(__name__, by="kind")]
