"""Qwen3: Llama's, but with norms on the queries and keys of a head, and biases in attention."""

from typing import Any, ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike


class Qwen3(LlamaLike):
    """Qwen3."""

    own: ClassVar[str] = "Qwen3Config"
    architecture: Literal["qwen3"]

    def options(self, vocabulary: int) -> dict[str, Any]:
        """With the biases."""
        own = {"head_dim": self.head, "attention_bias": True}
        return {**super().options(vocabulary), **own}

    @property
    def vectors(self) -> int:
        """Two of the width, those of a head's queries and keys; and the biases."""
        biases = 2 * (self.width + self.key_value_heads * self.head)
        return 2 * self.width + 2 * self.head + biases
