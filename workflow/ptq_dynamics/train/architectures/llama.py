"""Llama (arXiv 2302.13971), as Amber has it."""

from typing import ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike


class Llama(LlamaLike):
    """Llama."""

    own: ClassVar = "LlamaConfig"
    architecture: Literal["llama"]
