"""Apertus (arXiv 2509.14233): norms on queries and keys, xIELU, with two numbers, in a feedforward
layer without gate."""

from typing import ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike


class Apertus(LlamaLike):
    """Apertus."""

    own: ClassVar = "ApertusConfig"
    feedforward_layers: ClassVar = 2
    vectors: ClassVar = {"width": 2, "head": 2, "one": 2}
    architecture: Literal["apertus"]
