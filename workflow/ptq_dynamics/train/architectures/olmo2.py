"""OLMo 2 (arXiv 2501.00656): norms after attention and feedforward layer, and on queries and
keys."""

from typing import TYPE_CHECKING, ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike

if TYPE_CHECKING:
    from transformers import Olmo2Config


class Olmo2(LlamaLike):
    """OLMo 2."""

    scaled_norms_first: ClassVar[bool] = False
    architecture: Literal["olmo2"]

    def config(self, vocabulary: int) -> "Olmo2Config":
        """Its configuration."""
        from transformers import Olmo2Config

        return Olmo2Config(**self.options(vocabulary))

    @property
    def vectors(self) -> int:
        """Two of the width, and those of queries and keys."""
        return 3 * self.width + self.key_value_heads * self.head
