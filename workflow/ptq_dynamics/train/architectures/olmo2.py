"""OLMo 2 (arXiv 2501.00656): norms after attention and feedforward layer, and on queries and
keys."""

from transformers import Olmo2Config

from ptq_dynamics.train.architectures.llama_like import Settings, options

__all__ = ["Settings", "config"]


def config(settings: Settings, vocabulary: int, context: int) -> Olmo2Config:
    """Its configuration; `context` in tokens."""
    return Olmo2Config(**options(settings, vocabulary, context))
