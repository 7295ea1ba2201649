"""Apertus (arXiv 2509.14233): norms on queries and keys, xIELU in a feedforward layer without
gate."""

from typing import TYPE_CHECKING, ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike

if TYPE_CHECKING:
    from transformers import ApertusConfig


class Apertus(LlamaLike):
    """Apertus."""

    feedforward_layers: ClassVar[int] = 2
    architecture: Literal["apertus"]

    def config(self, vocabulary: int) -> "ApertusConfig":
        """Its configuration."""
        from transformers import ApertusConfig

        return ApertusConfig(**self.options(vocabulary))

    @property
    def vectors(self) -> int:
        """Two of the width, those of a head's queries and keys, and both numbers of xIELU."""
        return 2 * self.width + 2 * self.head + 2
