"""Apertus (arXiv 2509.14233): norms on queries and keys, xIELU in a feedforward layer without
gate."""

from typing import ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike


class Apertus(LlamaLike):
    """Apertus."""

    own: ClassVar[str] = "ApertusConfig"
    feedforward_layers: ClassVar[int] = 2
    architecture: Literal["apertus"]

    @property
    def vectors(self) -> int:
        """Two of the width, those of a head's queries and keys, and both numbers of xIELU."""
        return 2 * self.width + 2 * self.head + 2
