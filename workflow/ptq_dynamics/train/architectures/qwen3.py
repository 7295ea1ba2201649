"""Qwen3: Llama's, but with norms on the queries and keys of a head, and biases in attention."""

from typing import Any, ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike


class Qwen3(LlamaLike):
    """Qwen3."""

    own: ClassVar = "Qwen3Config"
    vectors: ClassVar = {"width": 4, "head": 2, "keys": 2}
    architecture: Literal["qwen3"]

    def options(self, vocabulary: int) -> dict[str, Any]:
        """With the biases."""
        return {**super().options(vocabulary), "head_dim": self.head, "attention_bias": True}
