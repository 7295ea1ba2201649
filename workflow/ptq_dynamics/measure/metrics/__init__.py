"""Metrics of a model in memory, one module each. Figures name their columns."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Strict

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Column:
    """A metric by its name in the table of measurements. Figures show it in a panel with a `title`
    and a `label` of the axis, which ends with the unit. A `quantized` one is of quantized weights,
    and `{q}` in its title stands for the quantizer; others are of weights in full precision."""

    name: str
    title: str
    label: str
    quantized: bool = False


@dataclass(frozen=True, eq=False)
class Measured:
    """A checkpoint: the `model` that is measured, and the `folder` of its weights in full
    precision. The `losses` (nats, float32 [n]) are those of `blocks`, int64 [n, context + 1], and
    `compared` has the mean of each metric of predictions over the tokens of a block, [n]."""

    model: "PreTrainedModel"
    folder: Path
    blocks: "Tensor"
    losses: "Tensor"
    batch: int
    compared: "Mapping[str, Tensor]"


class ModelMetric(Strict):
    """A metric of models, with a column of the table of measurements."""

    columns: ClassVar[tuple[Column]]

    metric: str

    @abstractmethod
    def measure(self, measured: Measured) -> tuple[float, float | None]:
        """Return the value at a checkpoint, and its standard error if there is one."""


class OfPredictions(ModelMetric):
    """A metric that compares predictions by quantized weights with those in full precision. It
    takes them from the pass over the text that measures the loss."""

    @abstractmethod
    def of(self, full: "Tensor", quantized: "Tensor") -> "Tensor":
        """Return the value at each token, [length], from logits, [length, vocabulary]."""

    def measure(self, measured: Measured) -> tuple[float, float | None]:
        """Return the mean over blocks, and its standard error."""
        means = measured.compared[self.metric].double()
        return float(means.mean()), float(means.std() / len(means) ** 0.5)


AnyMetric = Annotated[ModelMetric, OneOf(__name__, by="metric")]
