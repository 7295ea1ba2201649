"""OLMo (arXiv 2402.00838): norms without weights."""

from typing import ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike


class Olmo(LlamaLike):
    """OLMo 1."""

    own: ClassVar[str] = "OlmoConfig"
    scaled_norms_first: ClassVar[bool] = False
    architecture: Literal["olmo"]

    @property
    def vectors(self) -> int:
        """None."""
        return 0

    @property
    def final_norm(self) -> int:
        """None."""
        return 0
