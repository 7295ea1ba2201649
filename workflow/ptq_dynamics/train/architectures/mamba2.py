"""Mamba-2 (arXiv 2405.21060), a state-space model, of transformers' own class."""

from typing import Any, ClassVar, Literal

from ptq_dynamics.base.fields import Count
from ptq_dynamics.train.architectures import Architecture

KERNEL = 4  # positions that a convolution reads


class Mamba2(Architecture):
    """Mamba-2: blocks of `feedforward` channels in `heads`, with `state` numbers a channel, and no
    attention. The scan takes `chunk` tokens at once. Convolutions stay in full precision."""

    own: ClassVar = "Mamba2Config"
    divisors: ClassVar = {"width": "feedforward", "heads": "feedforward"}
    unquantized: ClassVar = ("mixer.conv1d.weight",)
    architecture: Literal["mamba2"]
    state: Count
    chunk: Count

    def options(self, vocabulary: int) -> dict[str, Any]:
        """Add the sizes of heads and states, in one group."""
        inner = {"expand": self.feedforward // self.width, "num_heads": self.heads}
        inner |= {"head_dim": self.feedforward // self.heads, "state_size": self.state}
        inner |= {"n_groups": 1, "chunk_size": self.chunk, "conv_kernel": KERNEL}
        return {**super().options(vocabulary), **inner, "tie_word_embeddings": False}

    def parameters(self, vocabulary: int) -> int:
        """Count those of layers (convolutions with biases), norms, embedding and head."""
        width, inner = self.width, self.feedforward
        convolved = inner + 2 * self.state
        layer = width * (2 * inner + convolved + self.heads) + (KERNEL + 1) * convolved
        layer += 3 * self.heads + inner + width
        return self.layers * layer + width + 2 * vocabulary * width
