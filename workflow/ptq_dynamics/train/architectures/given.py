"""Models from other sources, of any architecture that transformers reads."""

from typing import TYPE_CHECKING, Literal

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.train.architectures import Architecture

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Given(Architecture):
    """A model as its files describe it: model_type, number of weights, widths of linear layers."""

    architecture: Literal["given"] = "given"
    name: str
    total: int
    inputs: tuple[int, ...]
    vocabulary: int
    layers: int = 1
    width: int = 1
    heads: int = 1
    feedforward: int = 1

    def parameters(self, vocabulary: int) -> int:
        """Return the number of weights and biases in the files."""
        return self.total

    @property
    def widths(self) -> tuple[int, ...]:
        """Input widths of the linear layers."""
        return self.inputs

    def create(self, vocabulary: int, seed: int) -> "PreTrainedModel":
        """Raise `Problem`: the workflow does not train such models."""
        raise Problem(f"model {self.name} is given and cannot be trained; name another one")
