"""OLMo (arXiv 2402.00838): norms without weights."""

from typing import ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike


class Olmo(LlamaLike):
    """OLMo 1."""

    own: ClassVar = "OlmoConfig"
    scaled_norms_first: ClassVar = False
    vectors: ClassVar = {}
    final_norms: ClassVar = 0
    architecture: Literal["olmo"]
