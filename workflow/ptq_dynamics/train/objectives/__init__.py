"""Training objectives: classes that read the batches of a run and compute its loss."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, Protocol

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.engine.manifest import Manifest

if TYPE_CHECKING:
    from torch import Tensor, nn


class Batches(Protocol):
    """The batches of a run, int64."""

    def at(self, step: int, rows: Sequence[int] | None = None) -> "Tensor":
        """Return rows (None: all) of the batch after `step` updates."""


class Slope(NamedTuple):
    """Loss (0-dim) and gradient by parameter, summed over the `terms` of a whole batch."""

    loss: "Tensor"
    gradient: Mapping[str, "Tensor"]
    terms: "Tensor"


class Objective(Strict):
    """A training objective; an `anchored` one compares with the model at the start.
    Parts of a batch are trained apart, so a term of the loss depends on its rows alone."""

    of_dialogues: ClassVar[bool] = True
    anchored: ClassVar[bool] = False

    kind: str

    @abstractmethod
    def data(self, corpus: Manifest, context: int, batch: int, seed: int) -> Batches:
        """Return the batches of a run."""

    @abstractmethod
    def count(self, rows: "Tensor") -> "int | Tensor":
        """Return the number of terms of the mean that is the loss."""

    @abstractmethod
    def loss(self, model: "nn.Module", rows: "Tensor", before: "nn.Module | None") -> "Tensor":
        """Return the sum of these terms; an anchored objective uses the model `before`."""


class Sloped(Objective):
    """An objective that minimizes another loss, which depends on the gradient of the whole
    batch."""

    @abstractmethod
    def sloped_loss(self, model: "nn.Module", rows: "Tensor", slope: Slope) -> "Tensor":
        """Return the share of rows in the loss that it minimizes, times the number of terms;
        `slope` is that of `loss`."""


AnyObjective = Annotated[Objective, OneOf(__name__, by="kind")]
