"""OLMo 2 (arXiv 2501.00656): norms after attention and feedforward layer, and on queries and
keys."""

from typing import ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike


class Olmo2(LlamaLike):
    """OLMo 2."""

    own: ClassVar = "Olmo2Config"
    scaled_norms_first: ClassVar = False
    vectors: ClassVar = {"width": 3, "keys": 1}
    architecture: Literal["olmo2"]
