"""Qwen3: Llama's, but with norms on the queries and keys of a head, and biases in attention."""

from typing import TYPE_CHECKING, Literal

from ptq_dynamics.train.architectures import LlamaLike

if TYPE_CHECKING:
    from transformers import Qwen3Config


class Qwen3(LlamaLike):
    """Qwen3."""

    architecture: Literal["qwen3"]

    def config(self, vocabulary: int) -> "Qwen3Config":
        """Its configuration."""
        from transformers import Qwen3Config

        return Qwen3Config(**self.options(vocabulary), head_dim=self.head, attention_bias=True)

    @property
    def vectors(self) -> int:
        """Two of the width, those of a head's queries and keys; and the biases."""
        biases = 2 * (self.width + self.key_value_heads * self.head)
        return 2 * self.width + 2 * self.head + biases
