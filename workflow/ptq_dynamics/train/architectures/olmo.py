"""OLMo (arXiv 2402.00838): norms without weights."""

from typing import TYPE_CHECKING, ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike

if TYPE_CHECKING:
    from transformers import OlmoConfig


class Olmo(LlamaLike):
    """OLMo 1."""

    scaled_norms_first: ClassVar[bool] = False
    architecture: Literal["olmo"]

    def config(self, vocabulary: int) -> "OlmoConfig":
        """Its configuration."""
        from transformers import OlmoConfig

        return OlmoConfig(**self.options(vocabulary))

    @property
    def vectors(self) -> int:
        """None."""
        return 0

    @property
    def final_norm(self) -> int:
        """None."""
        return 0
