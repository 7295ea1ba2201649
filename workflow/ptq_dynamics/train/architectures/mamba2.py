"""Mamba-2 (arXiv 2405.21060), a state-space model."""

from typing import ClassVar, Literal

from ptq_dynamics.base.fields import Count
from ptq_dynamics.train.architectures import Architecture


class Mamba2(Architecture):
    """Mamba-2: layers of `feedforward` channels in `heads`, with `state` numbers a channel. Before
    the scan, a full-precision convolution mixes 4 tokens. The scan takes `chunk` tokens at once."""

    own: ClassVar = "Mamba2Config"
    divisors: ClassVar = {"width": "feedforward", "heads": "feedforward"}
    unquantized: ClassVar = ("mixer.conv1d.weight",)
    architecture: Literal["mamba2"]
    state: Count
    chunk: Count

    def options(self, vocabulary: int) -> dict[str, object]:
        """Add the sizes of heads and states. All heads share one group of state projections."""
        inner = {"expand": self.feedforward // self.width, "num_heads": self.heads, "n_groups": 1}
        inner |= {"head_dim": self.feedforward // self.heads, "state_size": self.state}
        return {**super().options(vocabulary), **inner, "chunk_size": self.chunk}

    def parameters(self, vocabulary: int) -> int:
        """Count the parameters of layers (convolutions have biases), norms, embedding and head."""
        width, inner, convolved = self.width, self.feedforward, self.feedforward + 2 * self.state
        layer = width * (2 * inner + convolved + self.heads) + 5 * convolved
        layer += 3 * self.heads + inner + width
        return self.layers * layer + width + 2 * vocabulary * width
