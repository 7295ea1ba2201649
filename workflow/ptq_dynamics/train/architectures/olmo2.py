"""OLMo 2 (arXiv 2501.00656): norms after attention and feedforward layer, and on queries and
keys."""

from typing import ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike


class Olmo2(LlamaLike):
    """OLMo 2."""

    own: ClassVar[str] = "Olmo2Config"
    scaled_norms_first: ClassVar[bool] = False
    architecture: Literal["olmo2"]

    @property
    def vectors(self) -> int:
        """Two of the width, and those of queries and keys."""
        return 3 * self.width + self.key_value_heads * self.head
