"""Llama (arXiv 2302.13971), as Amber has it."""

from typing import TYPE_CHECKING, Literal

from ptq_dynamics.train.architectures import LlamaLike

if TYPE_CHECKING:
    from transformers import LlamaConfig


class Llama(LlamaLike):
    """Llama."""

    architecture: Literal["llama"]

    def config(self, vocabulary: int) -> "LlamaConfig":
        """Its configuration."""
        from transformers import LlamaConfig

        return LlamaConfig(**self.options(vocabulary))
