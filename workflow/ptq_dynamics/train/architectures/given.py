"""Models that were made elsewhere, of any architecture that transformers reads."""

from typing import Any, Literal

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.train.architectures import Architecture


class Given(Architecture):
    """A model as its files describe it: its weights in `total`, and the input widths of the linear
    layers in its blocks; `name` is its model_type in transformers."""

    architecture: Literal["given"] = "given"
    name: str
    total: int
    inputs: tuple[int, ...]
    vocabulary: int
    # Only what is trained here has these from its configuration.
    layers: int = 1
    width: int = 1
    heads: int = 1
    feedforward: int = 1

    def parameters(self, vocabulary: int) -> int:
        """Weights and biases in its files."""
        return self.total

    @property
    def widths(self) -> tuple[int, ...]:
        """Input widths of its linear layers."""
        return self.inputs

    def create(self, vocabulary: int, seed: int) -> Any:
        """Raise `Problem`: nothing trains it."""
        raise Problem(f"a model that is given ({self.name}) is not trained here; name another one")
